"""Kernels over rows: embedding sum, add and RMSNorm, q/k norm with rotation and KV write, SwiGLU.

Every step of the eager twins that rounds to the tensors' type rounds here, too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ar_worker.kernels.attention import rotated


@triton.jit
def embed_frame(
    frames_ptr,
    text_ptr,
    codes_ptr,
    offsets_ptr,
    out_ptr,
    frames_row,
    first,
    last,
    divisor,
    DIM: tl.constexpr,
    CODEBOOKS: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum of a frame's table rows. Grid [rows, blocks of DIM]."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    TYPE: tl.constexpr = out_ptr.dtype.element_ty
    inside = column < DIM
    token = tl.load(frames_ptr + row * frames_row)
    text = tl.load(text_ptr + token * DIM + column, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for index in tl.static_range(CODEBOOKS):
        code = tl.load(frames_ptr + row * frames_row + 1 + index) + tl.load(offsets_ptr + index)
        total += tl.load(codes_ptr + code * DIM + column, mask=inside, other=0.0).to(tl.float32)
    audio = (total.to(TYPE).to(tl.float32) + text).to(TYPE)
    if SCALED:
        audio = (audio.to(tl.float32) / divisor).to(TYPE)
    out = tl.where((token >= first) & (token <= last), audio.to(tl.float32), text)
    tl.store(out_ptr + row * DIM + column, out.to(TYPE), mask=inside)


@triton.jit
def add_rms_norm(
    x_ptr,
    delta_ptr,
    weight_ptr,
    out_ptr,
    x_row,
    delta_row,
    eps,
    DIM: tl.constexpr,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """RMSNorm of x + delta; the sum replaces delta. Grid [rows]."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    TYPE: tl.constexpr = out_ptr.dtype.element_ty
    inside = column < DIM
    x = tl.load(x_ptr + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        delta = tl.load(delta_ptr + row * delta_row + column, mask=inside, other=0.0).to(tl.float32)
        total = (x + delta).to(TYPE)
        tl.store(delta_ptr + row * delta_row + column, total, mask=inside)
        x = total.to(tl.float32)
    normed = (x * (1.0 / tl.sqrt(tl.sum(x * x, 0) / DIM + eps))).to(TYPE).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * DIM + column, (normed * weight).to(TYPE), mask=inside)


@triton.jit
def finite(x):
    """x, with 0 for NaN and infinities."""
    return tl.where(tl.abs(x) < float("inf"), x, 0.0)


@triton.jit
def qk_norm_rope_write(
    qkv_ptr,
    weight_ptr,
    rotation_ptr,
    kv_ptr,
    writes_ptr,
    rotation_row,
    kv_head_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    NORM: tl.constexpr,
):
    """Norm and rotation of a q or k head in place; k and v heads go to their page. Grid [rows, all heads]."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    HALF: tl.constexpr = DIM // 2
    TYPE: tl.constexpr = qkv_ptr.dtype.element_ty
    pair = tl.arange(0, HALF)
    here = qkv_ptr + (row * (HEADS + 2 * KV_HEADS) + head) * DIM
    page = kv_ptr + (head - HEADS).to(tl.int64) * kv_head_stride + tl.load(writes_ptr + row) * DIM
    if head < HEADS + KV_HEADS:
        even, odd = rotated(
            here, weight_ptr + head * DIM, rotation_ptr + row * rotation_row, eps, HALF, DIM, NORM, TYPE
        )
        tl.store(here + 2 * pair, even.to(TYPE))
        tl.store(here + 2 * pair + 1, odd.to(TYPE))
        if head >= HEADS:
            tl.store(page + 2 * pair, finite(even).to(TYPE))
            tl.store(page + 2 * pair + 1, finite(odd).to(TYPE))
    else:
        dims = tl.arange(0, DIM)
        tl.store(page + dims, finite(tl.load(here + dims).to(tl.float32)).to(TYPE))


@triton.jit
def swiglu(x_ptr, out_ptr, inner, BLOCK: tl.constexpr):
    """silu(gate) * up. Grid [rows, blocks of inner]."""
    row, column = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    TYPE: tl.constexpr = out_ptr.dtype.element_ty
    inside = column < inner
    gate = tl.load(x_ptr + row * 2 * inner + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * inner + inner + column, mask=inside, other=0.0).to(tl.float32)
    silu = (gate / (1.0 + tl.exp(-gate))).to(TYPE).to(tl.float32)
    tl.store(out_ptr + row * inner + column, (silu * up).to(TYPE), mask=inside)
