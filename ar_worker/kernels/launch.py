"""Launches of the kernels, with the signatures of their eager twins; a call that a kernel can't serve goes to the twin.

Tiles and warps are fixed: tuning at run time would make results depend on a race, and can't be captured.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from ar_worker import ops
from ar_worker.kernels import attention, draw, rows
from ar_worker.kernels.calls import fell_back, launched
from ar_worker.sampling import FrameParams, Noise, Uniforms

ROW_BLOCK = 1024
MOST_DIM = 16384  # of a row that one program normalises


def power_of_two(n: int) -> bool:
    """Whether n is a power of two."""
    return n > 0 and n & (n - 1) == 0


def embed_frame(frames: Tensor, tables: ops.FrameTables) -> Tensor:
    """See :func:`ar_worker.ops.embed_frame`."""
    launched("embed_frame")
    count, dim, codebooks = len(frames), tables.text.shape[1], len(tables.offsets)
    out = torch.empty(count, dim, dtype=tables.text.dtype, device=frames.device)
    rows.embed_frame[count, triton.cdiv(dim, ROW_BLOCK)](
        frames,
        tables.text,
        tables.codes,
        tables.offsets,
        out,
        frames.stride(0),
        *tables.semantic,
        math.sqrt(codebooks + 1),
        DIM=dim,
        CODEBOOKS=codebooks,
        SCALED=tables.scaled,
        BLOCK=ROW_BLOCK,
    )
    return out


def add_rms_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See :func:`ar_worker.ops.add_rms_norm`."""
    count, dim = x.shape
    if dim > MOST_DIM:
        fell_back("add_rms_norm", f"rows of {dim}")
        return ops.add_rms_norm(x, delta, weight, eps)
    launched("add_rms_norm")
    total, out = x if delta is None else delta, torch.empty(count, dim, dtype=x.dtype, device=x.device)
    strides = x.stride(0), total.stride(0)
    block = triton.next_power_of_2(dim)
    rows.add_rms_norm[count,](
        x, total, weight, out, *strides, eps, DIM=dim, ADD=delta is not None, BLOCK=block, num_warps=8
    )
    return out, total


def _norm_arguments(norm: ops.HeadNorm, qkv: Tensor) -> tuple[Tensor, Tensor, int]:
    rotation = torch.view_as_real(norm.rotation)
    return (
        qkv if norm.weight is None else norm.weight,
        rotation,
        0 if len(rotation) == 1 else rotation.stride(0),
    )


def qk_norm_rope_write(qkv: Tensor, norm: ops.HeadNorm, kv: Tensor, writes: Tensor) -> None:
    """See :func:`ar_worker.ops.qk_norm_rope_write`."""
    count, heads, dim = qkv.shape
    kv_heads = kv.shape[0] // 2
    if not power_of_two(dim) or not qkv.is_contiguous():
        fell_back("qk_norm_rope_write", f"heads of {dim}, or strided")
        return ops.qk_norm_rope_write(qkv, norm, kv, writes)
    launched("qk_norm_rope_write")
    weight, rotation, rotation_row = _norm_arguments(norm, qkv)
    rows.qk_norm_rope_write[count, heads](
        qkv,
        weight,
        rotation,
        kv,
        writes,
        rotation_row,
        kv.stride(0),
        norm.eps,
        HEADS=heads - 2 * kv_heads,
        KV_HEADS=kv_heads,
        DIM=dim,
        NORM=norm.weight is not None,
        num_warps=1,
    )
    return None


def paged_decode(q: Tensor, kv: Tensor, pages: Tensor, slots: Tensor, positions: Tensor, page_size: int) -> Tensor:
    """See :func:`ar_worker.attention.paged_decode`."""
    count, heads, dim = q.shape
    kv_heads = kv.shape[0] // 2
    group, splits = heads // kv_heads, attention.SPLITS
    if not power_of_two(dim) or dim < 16 or group > attention.LEAST_QUERIES or q.stride()[1:] != (dim, 1):
        fell_back("paged_decode", f"{group} heads of {dim} per kv head, or strided")
        return ops.paged_decode(q, kv, pages, slots, positions, page_size)
    launched("paged_decode")
    partial = torch.empty(count, heads, splits, dim, dtype=torch.float32, device=q.device)
    stats = torch.empty(count, heads, splits, 2, dtype=torch.float32, device=q.device)
    out = torch.empty(count, heads * dim, dtype=q.dtype, device=q.device)
    sizes: dict[str, Any] = {"PAGE": page_size, "GROUP": group, "QUERIES": attention.LEAST_QUERIES, "DIM": dim}
    attention.paged_decode_partial[count, kv_heads, splits](
        q,
        kv,
        pages,
        slots,
        positions,
        partial,
        stats,
        q.stride(0),
        kv.stride(0),
        pages.stride(0),
        1 / math.sqrt(dim),
        SPLITS=splits,
        TILE=attention.TILE,
        num_warps=4,
        num_stages=2,
        **sizes,
    )
    attention.paged_decode_reduce[count, heads](partial, stats, out, DIM=dim, SPLITS=splits, num_warps=2)
    return out


def swiglu(x: Tensor) -> Tensor:
    """See :func:`ar_worker.ops.swiglu`."""
    if not x.is_contiguous():
        fell_back("swiglu", "strided")
        return ops.swiglu(x)
    launched("swiglu")
    count, inner = x.shape[0], x.shape[1] // 2
    out = torch.empty(count, inner, dtype=x.dtype, device=x.device)
    rows.swiglu[count, triton.cdiv(inner, ROW_BLOCK)](x, out, inner, BLOCK=ROW_BLOCK)
    return out


def fast_attention(qkv: Tensor, norm: ops.HeadNorm, kv: Tensor, start: int) -> Tensor:
    """See :func:`ar_worker.ops.fast_attention`; qkv stays as it is."""
    batch, kv_heads, positions = kv.shape[0], kv.shape[1] // 2, kv.shape[2]
    length, heads, dim = len(qkv) // batch, qkv.shape[1] - 2 * kv_heads, qkv.shape[2]
    if not power_of_two(dim) or not (qkv.is_contiguous() and kv.is_contiguous()):
        fell_back("fast_attention", f"heads of {dim}, or strided")
        return ops.fast_attention(qkv, norm, kv, start)
    launched("fast_attention")
    weight, rotation, rotation_row = _norm_arguments(norm, qkv)
    out = torch.empty(len(qkv), heads * dim, dtype=qkv.dtype, device=qkv.device)
    attention.fast_attention[batch, heads](
        qkv,
        weight,
        rotation,
        kv,
        out,
        start,
        rotation_row,
        norm.eps,
        1 / math.sqrt(dim),
        HEADS=heads,
        KV_HEADS=kv_heads,
        LENGTH=length,
        POSITIONS=positions,
        SPAN=triton.next_power_of_2(positions),
        DIM=dim,
        NORM=norm.weight is not None,
        num_warps=2,
    )
    return out


def _block(count: int) -> tuple[int, bool]:
    """The columns that one program ranks as a block, and whether one more is left."""
    return (count - 1, True) if power_of_two(count - 1) else (triton.next_power_of_2(count), False)


def _draw(logits: Tensor, ids: Tensor | None, end_id: int, params: FrameParams, noise: Noise, codebook: int) -> Tensor:
    """The draw of a codebook; ``ids`` for the main token's two draws."""
    token = ids is not None
    temperature, limits = params.main if token else params.code
    assert isinstance(temperature, Tensor)
    count, (block, extra) = logits.shape[1], _block(logits.shape[1])
    out = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    keys = noise.keys[:, 2 * codebook :]
    one_row = 0 if len(limits) == 1 else limits.stride(0)
    draw.draw[len(logits),](
        logits,
        logits if ids is None else ids,
        keys,
        temperature,
        limits,
        params.window,
        params.checked,
        out,
        logits.stride(0),
        keys.stride(0),
        temperature.stride(0),
        temperature.stride(1) if token else 0,
        one_row,
        limits.stride(1) if token else 0,
        params.window.stride(0),
        count,
        params.window.shape[1],
        end_id,
        TOKEN=token,
        EXTRA=extra,
        RANKS=params.ranks,
        BLOCK=block,
        WINDOW_BLOCK=draw.WINDOW_BLOCK,
        num_warps=8,
    )
    return out


def _undrawable(logits: Tensor, params: FrameParams, uniforms: Uniforms) -> str | None:
    """The reason why the kernel can't draw, if there is one."""
    if not isinstance(uniforms, Noise):
        return "noise from elsewhere"
    if params.ranks > _block(logits.shape[1])[0] or params.window.shape[1] > draw.WINDOW_BLOCK:
        return f"{params.ranks} ranks of {logits.shape[1]} candidates"
    temperatures = params.main.temperature, params.code.temperature
    return None if all(isinstance(t, Tensor) for t in temperatures) else "one temperature for all rows"


def draw_token(logits: Tensor, ids: Tensor, im_end_id: int, params: FrameParams, uniforms: Uniforms) -> Tensor:
    """See :func:`ar_worker.sampling.draw_token`. Equal logits are ordered by index; nearly equal ones are not."""
    if (reason := _undrawable(logits, params, uniforms)) is not None:
        fell_back("draw_token", reason)
        return ops.draw_token(logits, ids, im_end_id, params, uniforms)
    launched("draw_token")
    assert isinstance(uniforms, Noise)
    return _draw(logits, ids, im_end_id, params, uniforms, 0)


def draw_code(logits: Tensor, codebook: int, params: FrameParams, uniforms: Uniforms) -> Tensor:
    """See :func:`ar_worker.sampling.draw_code`, and :func:`draw_token`."""
    if (reason := _undrawable(logits, params, uniforms)) is not None:
        fell_back("draw_code", reason)
        return ops.draw_code(logits, codebook, params, uniforms)
    launched("draw_code")
    assert isinstance(uniforms, Noise)
    return _draw(logits, None, -1, params, uniforms, codebook)


KERNELS = ops.Ops(
    embed_frame=embed_frame,
    add_rms_norm=add_rms_norm,
    qk_norm_rope_write=qk_norm_rope_write,
    paged_decode=paged_decode,
    swiglu=swiglu,
    fast_attention=fast_attention,
    draw_token=draw_token,
    draw_code=draw_code,
)
