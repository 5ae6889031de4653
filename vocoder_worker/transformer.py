"""Causal transformer of the codec, with a sliding attention window.

Pre-norm blocks with layer scale, interleaved rotary embedding at absolute positions, and a window of W positions, the
query's own included. State of a block: the keys (already rotated) and values of the last W - 1 positions.

Shapes: B rows, T new steps, K = W - 1 + T keys, H heads of D.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.checkpoint import WindowTransformerConfig
from vocoder_worker.streaming import CausalLayer, StreamBatch


class Span(NamedTuple):
    """Shared by all blocks of a call: the rotation of each new step, and the mask of the keys that it sees."""

    rotation: Tensor  # complex64 [B, T, 1, 1, D / 2]
    mask: Tensor  # float32 [B, 1, T, K], 0 or -inf


def rotation(positions: Tensor, head_dim: int, base: float) -> Tensor:
    """Return cos + i sin of position / base^(2j / D), rounded to bf16 as in the training of the published model.

    Computed for the positions at hand: a stream has no last position, and a table would have. [..., D / 2]
    """
    exponents = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angles = positions[..., None].float() * (1.0 / base**exponents)
    return torch.complex(angles.cos().bfloat16().float(), angles.sin().bfloat16().float())


def window_mask(starts: Tensor, steps: int, window: int) -> Tensor:
    """Return the mask of keys seen by each new step. Key k is at position start - (W - 1) + k; none is below 0."""
    keys = torch.arange(window - 1 + steps, device=starts.device)
    queries = torch.arange(steps, device=starts.device)[:, None]
    in_window = (keys >= queries) & (keys < queries + window)
    exists = keys >= (window - 1 - starts)[:, None, None, None]
    return torch.where(in_window & exists, 0.0, -torch.inf)


class Attention(CausalLayer):
    """Multi-head attention over the window: [B, T, dim] to [B, T, dim]."""

    time_dim = 1

    def __init__(self, config: WindowTransformerConfig) -> None:
        super().__init__()
        self.heads = (config.n_head, config.head_dim)
        width = config.n_head * config.head_dim
        self.wqkv = nn.Linear(config.dim, 3 * width, bias=False)
        self.wo = nn.Linear(width, config.dim, bias=False)
        self.state_shape = (config.window_size - 1, 2, *self.heads)

    def forward(self, x: Tensor, span: Span, batch: StreamBatch) -> Tensor:
        qkv = self.wqkv(x).unflatten(2, (3, *self.heads))
        torch.view_as_complex(qkv[:, :, :2].unflatten(-1, (-1, 2))).mul_(span.rotation)
        query = qkv[:, :, 0].transpose(1, 2)
        key, value = batch.extend(self, qkv[:, :, 1:]).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(query, key, value, span.mask)
        out: Tensor = self.wo(y.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """SwiGLU feed-forward: w2(silu(w1 x) · w3 x)."""

    def __init__(self, dim: int, intermediate_size: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, intermediate_size, bias=False)
        self.w3 = nn.Linear(dim, intermediate_size, bias=False)
        self.w2 = nn.Linear(intermediate_size, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return y


class LayerScale(nn.Module):
    """Learned factor per channel of a residual branch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))


class TransformerBlock(nn.Module):
    def __init__(self, config: WindowTransformerConfig, norm_eps: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, norm_eps)
        self.attention = Attention(config)
        self.attention_layer_scale = LayerScale(config.dim)
        self.ffn_norm = nn.RMSNorm(config.dim, norm_eps)
        self.feed_forward = FeedForward(config.dim, config.intermediate_size)
        self.ffn_layer_scale = LayerScale(config.dim)

    def forward(self, x: Tensor, span: Span, batch: StreamBatch) -> Tensor:
        attended = self.attention(self.attention_norm(x), span, batch)
        x = torch.addcmul(x, self.attention_layer_scale.gamma, attended)
        return torch.addcmul(x, self.ffn_layer_scale.gamma, self.feed_forward(self.ffn_norm(x)))


class WindowTransformer(nn.Module):
    """Stack of blocks with a final norm: [B, dim, T] to [B, dim, T]."""

    def __init__(self, config: WindowTransformerConfig, rope_base: float, norm_eps: float) -> None:
        super().__init__()
        self.window, self.head_dim, self.rope_base = config.window_size, config.head_dim, rope_base
        self.layers = nn.ModuleList(TransformerBlock(config, norm_eps) for _ in range(config.n_layer))
        self.norm = nn.RMSNorm(config.dim, norm_eps)

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        x = x.transpose(1, 2)
        span = self._span(x.shape[1], batch)
        for layer in self.layers:
            x = layer(x, span, batch)
        y: Tensor = self.norm(x).transpose(1, 2)
        return y

    def _span(self, steps: int, batch: StreamBatch) -> Span:
        starts = batch.starts(steps)
        positions = starts[:, None] + torch.arange(steps, device=starts.device)
        turn = rotation(positions, self.head_dim, self.rope_base)
        return Span(turn[:, :, None, None], window_mask(starts, steps, self.window))
