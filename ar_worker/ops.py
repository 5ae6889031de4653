"""Building blocks of the forward pass as plain functions: the eager versions, for any device.

``ar_worker/kernels`` has fused versions of the same signatures. Rounding follows the original: block norms round twice,
q/k norms once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ar_worker.attention import fold_heads, unfold_heads


class HeadNorm(NamedTuple):
    """Norm of the q and k heads, and their rotation."""

    weight: Tensor | None  # fp32 [heads + kv_heads, head_dim]; None: no norm
    eps: Tensor  # fp32 [1]
    rotation: Tensor  # complex64 [rows or 1, 1, head_dim / 2]


class FrameTables(NamedTuple):
    """Embeddings of a frame: a token and its codes."""

    text: Tensor  # [vocabulary, dim]
    codes: Tensor  # [codebooks * codebook_size, dim]
    offsets: Tensor  # int64 [codebooks], of each codebook in ``codes``
    semantic: tuple[int, int]  # first and last token id that has codes
    scaled: bool  # by 1 / sqrt(codebooks + 1), where there are codes


def embed_frame(frames: Tensor, tables: FrameTables) -> Tensor:
    """Embeddings [N, dim] of frames int64 [N, 11]; the codes of a text token are zeros and don't count."""
    tokens = frames[:, :1]
    text = F.embedding(tokens[:, 0], tables.text)
    codes = F.embedding(frames[:, 1:] + tables.offsets, tables.codes).sum(1)
    audio = codes.add_(text)
    if tables.scaled:
        audio.div_(math.sqrt(len(tables.offsets) + 1))
    first, last = tables.semantic
    return torch.where((tokens >= first).logical_and_(tokens <= last), audio, text)


def inverse_rms(x: Tensor, eps: Tensor) -> Tensor:
    """1 / sqrt(mean(x^2) + eps) over the last dimension, which is kept; x in fp32, eps fp32 [1]."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.addcmul(eps, norm, norm, value=1 / x.shape[-1]).rsqrt_()


def rms_norm(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """RMSNorm that rounds the normalised value to x's type before the weight is applied."""
    wide = x.float()
    return (wide * inverse_rms(wide, eps)).to(x.dtype).mul_(weight)


def add_rms_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
    """RMSNorm of ``x + delta``, and that sum. ``delta`` [N, dim] is overwritten; None: nothing to add."""
    total = x if delta is None else delta.add_(x)
    return rms_norm(total, weight, eps), total


def qk_norm_rope(qkv: Tensor, kv_heads: int, norm: HeadNorm) -> None:
    """Normalise and rotate q and k of qkv [N, heads + 2 * kv_heads, head_dim], in place."""
    qk = qkv[:, : qkv.shape[1] - kv_heads]
    if norm.weight is not None:
        wide = qk.float()
        torch.mul(wide * inverse_rms(wide, norm.eps), norm.weight, out=qk)
    wide = qk.float()  # of an fp32 tensor: itself
    torch.view_as_complex(wide.unflatten(-1, (-1, 2))).mul_(norm.rotation)
    if wide is not qk:
        qk.copy_(wide)


def qk_norm_rope_write(qkv: Tensor, norm: HeadNorm, kv: Tensor, writes: Tensor) -> None:
    """:func:`qk_norm_rope`, then write keys and values.

    Values that are not finite are written as 0: a recycled page is read beyond its end, masked, and 0 times NaN is NaN.

    Args:
        kv: [2 * kv_heads, positions, head_dim], keys of all heads, then values.
        writes: int64 [N], the position in ``kv`` of each row.
    """
    kv_heads = kv.shape[0] // 2
    qk_norm_rope(qkv, kv_heads, norm)
    finite = torch.nan_to_num(qkv[:, qkv.shape[1] - 2 * kv_heads :], 0.0, 0.0, 0.0)
    kv.index_copy_(1, writes, finite.transpose(0, 1))


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) * up of x [N, 2 * inner], gate and up side by side: [N, inner]."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def fast_attention(qkv: Tensor, kv: Tensor, position: int) -> Tensor:
    """Attention of one position within a frame; writes its key and value first.

    Args:
        qkv: [B, heads + 2 * kv_heads, head_dim], rotated.
        kv: [B, 2 * kv_heads, codebooks, head_dim], filled before ``position``; what lies behind is not read.

    Returns:
        [B, heads * head_dim].
    """
    batch, kv_heads = kv.shape[0], kv.shape[1] // 2
    heads = qkv.shape[1] - 2 * kv_heads
    kv.select(2, position).copy_(qkv[:, heads:])
    keys, values = kv.narrow(2, 0, position + 1).chunk(2, 1)
    q = fold_heads(qkv[:, :heads], batch, kv_heads)
    return unfold_heads(F.scaled_dot_product_attention(q, keys, values), 1)
