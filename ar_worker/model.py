"""The Dual-AR model over explicit state: a slow stack over positions, a fast stack over the codebooks of one frame.

Rows are independent: N positions of any sequences go through the slow stack together, B frames through the fast one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ar_worker.ops import EAGER, FrameTables, HeadNorm, Ops, rms_norm
from ar_worker.rows import RowPolicy
from ar_worker.weights import DualArWeights, LayerWeights
from common.checkpoint import ModelConfig, StackConfig

Attend: TypeAlias = Callable[[int, Tensor, HeadNorm], Tensor]
"""Attention of a layer: normalises and rotates qkv [rows, heads + 2 * kv_heads, head_dim], keeps its keys and values,
and returns [rows, heads * head_dim]."""


def rotary_table(positions: int, head_dim: int, base: float, device: torch.device) -> Tensor:
    """cos + i sin of ``position * base^(-2j / head_dim)``, rounded to bfloat16: complex64 [positions, head_dim / 2]."""
    frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(positions).float(), frequencies)
    return torch.complex(angles.cos().bfloat16().float(), angles.sin().bfloat16().float()).to(device)


class Stack:
    """Transformer blocks: pre-norm attention and SwiGLU, both residual."""

    def __init__(self, config: StackConfig, layers: Sequence[LayerWeights], rows: RowPolicy, ops: Ops) -> None:
        self._config, self._layers, self._rows, self._ops = config, layers, rows, ops
        self.qk_weights = [self._qk_weight(layer) for layer in layers]
        self.eps = config.norm_eps
        # On CUDA the addition is part of the next norm; in bf16 the product is rounded before it, as in the original.
        self._add_in_product = layers[0].wqkv.device.type == "cpu" and layers[0].wqkv.dtype == torch.float32

    def __call__(self, x: Tensor, rotation: Tensor, attend: Attend, first: Tensor | None = None) -> Tensor:
        """Run x [rows, dim] through all blocks, without the final norm.

        ``rotation`` complex [rows or 1, 1, head_dim / 2]. ``first``: what :meth:`project` gives for x, where that is
        known.
        """
        eps, linear, ops = self.eps, self._rows.linear, self._ops
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            if first is None or index:
                normed, x = ops.add_rms_norm(x, delta, layer.attention_norm, eps)
                qkv = self._project(normed, layer)
            else:
                qkv = first
            attended = attend(index, qkv, HeadNorm(self.qk_weights[index], eps, rotation))
            x, delta = self._product(x, attended, layer.wo, layer.wo_bias)
            normed, x = ops.add_rms_norm(x, delta, layer.ffn_norm, eps)
            x, delta = self._product(x, ops.swiglu(linear(normed, layer.w13)), layer.w2)
        return x if delta is None else delta.add_(x)

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values of the first block, [rows, heads + 2 * kv_heads, head_dim]."""
        layer = self._layers[0]
        return self._project(rms_norm(x, layer.attention_norm, self.eps), layer)

    def _product(
        self, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The residual x and what is still to be added to it: y times weight, plus bias."""
        if self._add_in_product:
            return torch.addmm(x if bias is None else x + bias, y, weight), None
        return x, self._rows.linear(y, weight, bias)

    def _project(self, normed: Tensor, layer: LayerWeights) -> Tensor:
        return self._rows.linear(normed, layer.wqkv, layer.wqkv_bias).view(len(normed), -1, self._config.head_dim)

    def _qk_weight(self, layer: LayerWeights) -> Tensor | None:
        """Weights of the q and k norms for all heads, fp32 [heads + kv_heads, head_dim]."""
        if layer.q_norm is None or layer.k_norm is None:
            return None
        parts = [layer.q_norm.expand(self._config.n_head, -1), layer.k_norm.expand(self._config.n_kv_head, -1)]
        return torch.cat(parts).float()


class FrameAttention:
    """Causal attention of the fast stack within one frame: two positions in the first pass, then one each.

    Args:
        kv: room for keys and values, ``[layers, batch, 2 * kv_heads, codebooks, head_dim]``; needs no initial value.
    """

    def __init__(self, kv: Tensor, ops: Ops) -> None:
        self.positions = range(0)
        self._attend = ops.fast_attention
        self._layers = kv.unbind(0)

    def restart(self) -> None:
        """The next pass begins a frame."""
        self.positions = range(0)

    def advance(self, length: int) -> None:
        """The next pass is over so many further positions; only the first may be over more than one."""
        self.positions = range(self.positions.stop, self.positions.stop + length)

    def __call__(self, layer: int, qkv: Tensor, norm: HeadNorm) -> Tensor:
        """See :data:`Attend`; rows are batch * length."""
        return self._attend(qkv, norm, self._layers[layer], self.positions.start)


class DualAr:
    """The model. ``positions`` is how many positions a sequence may have."""

    def __init__(
        self, config: ModelConfig, weights: DualArWeights, rows: RowPolicy, positions: int, ops: Ops = EAGER
    ) -> None:
        self.config, self.weights, self.ops, self._rows = config, weights, ops, rows
        self._slow = Stack(config.slow, weights.slow, rows, ops)
        self._fast = Stack(config.fast, weights.fast, rows, ops)
        self.fast_projected = self._fast.project(weights.fast_embeddings)
        """Projection of each code by the first block of the fast stack, [codebook_size, heads, head_dim]."""
        device = weights.embeddings.device
        self.slow_rotation = rotary_table(positions, config.slow.head_dim, config.slow.rope_base, device)
        self.fast_rotation = rotary_table(config.num_codebooks, config.fast.head_dim, config.fast.rope_base, device)
        offsets = torch.arange(config.num_codebooks, device=device) * config.codebook_size
        semantic = (config.semantic_begin_id, config.semantic_end_id)
        self.tables = FrameTables(
            weights.embeddings, weights.codebook_embeddings, offsets, semantic, config.scale_codebook_embeddings
        )
        ids = torch.arange(semantic[0], semantic[1] + 1, device=device)
        self.candidates = torch.cat([ids, ids.new_full((1,), config.im_end_id)])
        """Token ids of the head's rows, int64 [codebook_size + 1]."""

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, activations and KV."""
        return self.weights.embeddings.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.weights.embeddings.device

    @property
    def table_bytes(self) -> int:
        """Of what is computed once, beside the weights."""
        return sum(table.nbytes for table in (self.fast_projected, self.slow_rotation, self.fast_rotation))

    @property
    def qk_weights(self) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Weights of the q and k norms of the slow and the fast stack's layers; see :class:`HeadNorm`."""
        return self._slow.qk_weights, self._fast.qk_weights

    def embed(self, frames: Tensor) -> Tensor:
        """Embed frames int64 [N, 11], a token and its ten codes (zeros on text): [N, dim]."""
        return self.ops.embed_frame(frames, self.tables)

    def slow(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Embedded rows x [N, dim] at ``positions`` [N] through the slow stack: [N, dim], before the final norm."""
        return self._slow(x, self.slow_rotation.index_select(0, positions).unsqueeze(1), attend)

    def head(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slow output x [B, dim]: logits [B, candidates], and what the fast stack is given [B, dim]."""
        normed, _ = self.ops.add_rms_norm(x, None, self.weights.slow_norm, self._slow.eps)
        logits = self._rows.linear(normed, self.weights.head)
        return logits, normed if self.config.norm_fastlayer_input else x

    def frame_attention(self, batch: int) -> FrameAttention:
        """Attention of the fast passes over one frame of ``batch`` rows."""
        config, table = self.config.fast, self.weights.fast_embeddings
        shape = (config.n_layer, batch, 2 * config.n_kv_head, self.config.num_codebooks, config.head_dim)
        return FrameAttention(torch.empty(shape, dtype=table.dtype, device=table.device), self.ops)

    def fast_first(self, hidden: Tensor, code: Tensor, attend: FrameAttention) -> Tensor:
        """Positions 0 (``hidden`` [B, dim]) and 1 (``code`` int64 [B] of codebook 0): logits of codebook 1."""
        if self.weights.project_in is not None:
            hidden = self._rows.linear(hidden, self.weights.project_in, self.weights.project_in_bias)
        x = torch.stack([hidden, F.embedding(code, self.weights.fast_embeddings)], 1)
        return self._fast_pass(x.flatten(0, 1), 2, attend)

    def fast_next(self, code: Tensor, attend: FrameAttention) -> Tensor:
        """The next position (``code`` int64 [B] of its codebook): logits [B, codebook_size] of the codebook
        after it."""
        x = self.weights.fast_embeddings.index_select(0, code)
        return self._fast_pass(x, 1, attend, self.fast_projected.index_select(0, code))

    def _fast_pass(self, x: Tensor, length: int, attend: FrameAttention, first: Tensor | None = None) -> Tensor:
        """Run x [B * length, dim], the next ``length`` positions of each row; ``first`` as for the stack."""
        attend.advance(length)
        rotation = self.fast_rotation[attend.positions.start : attend.positions.stop, None]
        if length > 1:
            rotation = rotation.repeat(len(x) // length, 1, 1)
        x = self._fast(x, rotation, attend, first)[length - 1 :: length]
        x, _ = self.ops.add_rms_norm(x, None, self.weights.fast_norm, self._fast.eps)
        return self._rows.linear(x, self.weights.fast_output)
