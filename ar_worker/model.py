"""The Dual-AR model over explicit state: a slow stack over positions, a fast stack over the codebooks of one frame.

Rows are independent: N positions of any sequences go through the slow stack together, B frames through the fast one.
Rounding follows the original: rotary tables are rounded to bfloat16, block norms round twice, q/k norms once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ar_worker.attention import FrameAttention
from ar_worker.rows import RowPolicy
from ar_worker.weights import DualArWeights, LayerWeights
from common.checkpoint import ModelConfig, StackConfig

Attend: TypeAlias = Callable[[int, Tensor], Tensor]


def rotary_table(positions: int, head_dim: int, base: float, device: torch.device) -> Tensor:
    """cos + i sin of ``position * base^(-2j / head_dim)``, rounded to bfloat16: complex64 [positions, head_dim / 2]."""
    frequencies = 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(positions).float(), frequencies)
    return torch.complex(angles.cos().bfloat16().float(), angles.sin().bfloat16().float()).to(device)


def inverse_rms(x: Tensor, eps: Tensor) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, which is kept; x in fp32, eps fp32 [1]."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).rsqrt_()


def rms_norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """RMSNorm that rounds the normalised value to x's type before the weight is applied."""
    wide = x.float()
    return (wide * inverse_rms(wide, eps)).to(x.dtype).mul_(weight)


class Stack:
    """Transformer blocks: pre-norm attention and SwiGLU, both residual."""

    def __init__(self, config: StackConfig, layers: Sequence[LayerWeights], rows: RowPolicy) -> None:
        self._config, self._layers, self._rows = config, layers, rows
        self._qk_weights = [self._qk_weight(layer) for layer in layers]
        self.eps = torch.tensor([config.norm_eps], device=layers[0].wqkv.device)

    def __call__(self, x: Tensor, rotation: Tensor, attend: Attend, first: Tensor | None = None) -> Tensor:
        """x [rows, dim] through all blocks (no final norm).

        ``rotation`` complex [rows or 1, 1, head_dim / 2]. ``attend(layer, qkv)`` keeps keys and values. ``first``: what
        :meth:`project` gives for x, where that is known.
        """
        eps = self.eps
        for index, layer in enumerate(self._layers):
            qkv = self.project(x, index) if first is None or index else first
            self._rotate(qkv, rotation)
            x = self._rows.linear(attend(index, qkv), layer.wo, layer.wo_bias).add_(x)
            x = self._feed_forward(layer, rms_norm(x, layer.ffn_norm, eps)).add_(x)
        return x

    def project(self, x: Tensor, index: int = 0) -> Tensor:
        """Queries, keys and values [rows, heads + 2 * kv_heads, head_dim], q and k normalised, not yet rotated."""
        layer, weight, rows = self._layers[index], self._qk_weights[index], x.shape[0]
        normed = rms_norm(x, layer.attention_norm, self.eps)
        qkv = self._rows.linear(normed, layer.wqkv, layer.wqkv_bias).view(rows, -1, self._config.head_dim)
        if weight is not None:  # this norm rounds once, after its weight
            qk = qkv[:, : weight.shape[0]]
            wide = qk.float()
            torch.mul(wide * inverse_rms(wide, self.eps), weight, out=qk)
        return qkv

    def _rotate(self, qkv: Tensor, rotation: Tensor) -> None:
        """Bring q and k to their positions, in place."""
        qk = qkv[:, : self._config.n_head + self._config.n_kv_head]
        wide = qk.float()
        pairs = torch.view_as_complex(wide.view(*wide.shape[:-1], -1, 2))
        qk.copy_(torch.view_as_real(pairs * rotation).view_as(qk))

    def _qk_weight(self, layer: LayerWeights) -> Tensor | None:
        """Weights of the q and k norms for all heads, fp32 [heads + kv_heads, head_dim]."""
        if layer.q_norm is None or layer.k_norm is None:
            return None
        parts = [layer.q_norm.expand(self._config.n_head, -1), layer.k_norm.expand(self._config.n_kv_head, -1)]
        return torch.cat(parts).float()

    def _feed_forward(self, layer: LayerWeights, x: Tensor) -> Tensor:
        gate, up = self._rows.linear(x, layer.w13).chunk(2, dim=-1)
        return self._rows.linear(F.silu(gate).mul_(up), layer.w2)


class DualAr:
    """The model. ``positions`` is how many positions a sequence may have."""

    def __init__(self, config: ModelConfig, weights: DualArWeights, rows: RowPolicy, positions: int) -> None:
        self.config, self._weights, self._rows = config, weights, rows
        self._slow = Stack(config.slow, weights.slow, rows)
        self._fast = Stack(config.fast, weights.fast, rows)
        self._fast_projected = self._fast.project(weights.fast_embeddings)  # of each code
        device = weights.embeddings.device
        self._slow_rotation = rotary_table(positions, config.slow.head_dim, config.slow.rope_base, device)
        self._fast_rotation = rotary_table(config.num_codebooks, config.fast.head_dim, config.fast.rope_base, device)
        self._code_offsets = torch.arange(config.num_codebooks, device=device) * config.codebook_size
        semantic = torch.arange(config.semantic_begin_id, config.semantic_end_id + 1, device=device)
        self.candidates = torch.cat([semantic, semantic.new_tensor([config.im_end_id])])
        """Token ids of the head's rows, int64 [codebook_size + 1]."""

    @property
    def table_bytes(self) -> int:
        """Of what is computed once, beside the weights."""
        return sum(table.nbytes for table in (self._fast_projected, self._slow_rotation, self._fast_rotation))

    def embed(self, frames: Tensor) -> Tensor:
        """frames int64 [N, 11], a token and its ten codes (zeros on text): [N, dim]."""
        tokens, config = frames[:, :1], self.config
        text = F.embedding(tokens[:, 0], self._weights.embeddings)
        codes = F.embedding(frames[:, 1:] + self._code_offsets, self._weights.codebook_embeddings).sum(1)
        audio = text + codes
        if config.scale_codebook_embeddings:
            audio = audio / math.sqrt(config.num_codebooks + 1)
        return torch.where((tokens >= config.semantic_begin_id) & (tokens <= config.semantic_end_id), audio, text)

    def slow(self, x: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Embedded rows x [N, dim] at ``positions`` [N] through the slow stack: [N, dim], before the final norm."""
        return self._slow(x, self._slow_rotation[positions].unsqueeze(1), attend)

    def head(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slow output x [B, dim]: logits float32 [B, candidates], and what the fast stack is given [B, dim]."""
        normed = rms_norm(x, self._weights.slow_norm, self._slow.eps)
        logits = self._rows.linear(normed, self._weights.head).float()
        return logits, normed if self.config.norm_fastlayer_input else x

    def frame_attention(self, batch: int) -> FrameAttention:
        """What the passes of the fast stack over one frame of ``batch`` rows attend by."""
        config, table = self.config.fast, self._weights.fast_embeddings
        shape = (config.n_layer, batch, 2 * config.n_kv_head, self.config.num_codebooks, config.head_dim)
        return FrameAttention(torch.empty(shape, dtype=table.dtype, device=table.device))

    def fast_first(self, hidden: Tensor, code: Tensor, attend: FrameAttention) -> Tensor:
        """Positions 0 (``hidden`` [B, dim]) and 1 (``code`` int64 [B] of codebook 0): logits of codebook 1."""
        if self._weights.project_in is not None:
            hidden = self._rows.linear(hidden, self._weights.project_in, self._weights.project_in_bias)
        x = torch.stack([hidden, F.embedding(code, self._weights.fast_embeddings)], 1)
        return self._fast_pass(x.flatten(0, 1), 2, attend)

    def fast_next(self, code: Tensor, attend: FrameAttention) -> Tensor:
        """The next position (``code`` int64 [B] of its codebook): logits float32 [B, codebook_size] of the codebook
        after it."""
        x = self._weights.fast_embeddings.index_select(0, code)
        return self._fast_pass(x, 1, attend, self._fast_projected.index_select(0, code))

    def _fast_pass(self, x: Tensor, length: int, attend: FrameAttention, first: Tensor | None = None) -> Tensor:
        """x [B * length, dim], the next ``length`` positions of each row; ``first`` as for the stack."""
        attend.advance(length)
        rotation = self._fast_rotation[attend.positions.start : attend.positions.stop, None]
        if length > 1:
            rotation = rotation.repeat(len(x) // length, 1, 1)
        x = self._fast(x, rotation, attend, first)[length - 1 :: length]
        x = rms_norm(x, self._weights.fast_norm, self._fast.eps)
        return self._rows.linear(x, self._weights.fast_output).float()
