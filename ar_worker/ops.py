"""Building blocks of the forward pass as plain functions: the eager versions, for any device.

``ar_worker/kernels`` has fused versions of the same signatures. Rounding follows the original: block norms round twice,
q/k norms once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ar_worker.attention import causal_mask, fold_heads, paged_decode, unfold_heads
from ar_worker.sampling import FrameParams, Uniforms, draw_code, draw_token


class HeadNorm(NamedTuple):
    """Norm of the q and k heads, and their rotation."""

    weight: Tensor | None  # fp32 [heads + kv_heads, head_dim]; None: no norm
    eps: float
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


@lru_cache(maxsize=32)
def _constant(value: float, device: torch.device) -> Tensor:
    return torch.full((1,), value, device=device)


def normalized(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimension; x in fp32.

    Computed as x * sqrt(n) / hypot(|x|, sqrt(n * eps)), which takes fewer operations.
    """
    n = x.shape[-1]
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    length = torch.hypot(norm, _constant(math.sqrt(n * eps), x.device))
    return torch.addcdiv(_constant(0.0, x.device), x, length, value=math.sqrt(n))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm that rounds the normalised value to x's type before the weight is applied."""
    return normalized(x.float(), eps).to(x.dtype).mul_(weight)


def add_rms_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """RMSNorm of ``x + delta``, and that sum. ``delta`` [N, dim] is overwritten; None: nothing to add."""
    total = x if delta is None else delta.add_(x)
    return rms_norm(total, weight, eps), total


def qk_norm_rope(qkv: Tensor, kv_heads: int, norm: HeadNorm) -> None:
    """Normalise and rotate q and k of qkv [N, heads + 2 * kv_heads, head_dim], in place."""
    qk = qkv[:, : qkv.shape[1] - kv_heads]
    if norm.weight is not None:
        torch.mul(normalized(qk.float(), norm.eps), norm.weight, out=qk)
    wide = qk.float()  # of an fp32 tensor: itself
    torch.view_as_complex(wide.view(*wide.shape[:2], -1, 2)).mul_(norm.rotation)
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


def fast_attention(qkv: Tensor, norm: HeadNorm, kv: Tensor, start: int) -> Tensor:
    """Causal attention of the next positions within a frame: norm and rotation, then writing of keys and values first.

    Args:
        qkv: [B * length, heads + 2 * kv_heads, head_dim], positions ``start`` and following; more than one only from 0.
        kv: [B, 2 * kv_heads, codebooks, head_dim], filled before ``start``; what lies behind is not read.

    Returns:
        [B * length, heads * head_dim].
    """
    batch, kv_heads = kv.shape[0], kv.shape[1] // 2
    length, heads = qkv.shape[0] // batch, qkv.shape[1] - 2 * kv_heads
    qk_norm_rope(qkv, kv_heads, norm)
    written = qkv.narrow(1, heads, 2 * kv_heads)
    if length > 1:
        kv.narrow(2, start, length).copy_(written.unflatten(0, (batch, length)).transpose(1, 2))
    else:
        kv.select(2, start).copy_(written)
    keys, values = kv.narrow(2, 0, start + length).chunk(2, 1)
    mask = None
    if length > 1:
        mask = causal_mask(torch.arange(length, device=qkv.device)[None], length, heads // kv_heads, qkv.dtype)
    q = fold_heads(qkv[:, :heads], batch, kv_heads)
    return unfold_heads(F.scaled_dot_product_attention(q, keys, values, attn_mask=mask), length)


class Ops(NamedTuple):
    """The functions that a frame on CUDA runs as kernels, of the same signatures as their eager twins."""

    embed_frame: Callable[[Tensor, FrameTables], Tensor] = embed_frame
    add_rms_norm: Callable[[Tensor, Tensor | None, Tensor, float], tuple[Tensor, Tensor]] = add_rms_norm
    qk_norm_rope_write: Callable[[Tensor, HeadNorm, Tensor, Tensor], None] = qk_norm_rope_write
    paged_decode: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, int], Tensor] = paged_decode
    swiglu: Callable[[Tensor], Tensor] = swiglu
    fast_attention: Callable[[Tensor, HeadNorm, Tensor, int], Tensor] = fast_attention
    draw_token: Callable[[Tensor, Tensor, int, FrameParams, Uniforms], Tensor] = draw_token
    draw_code: Callable[[Tensor, int, FrameParams, Uniforms], Tensor] = draw_code


EAGER = Ops()
