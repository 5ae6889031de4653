"""Attention kernels: paged split-K decode, and the fast stack's attention within a frame."""

from __future__ import annotations

import triton
import triton.language as tl

SPLITS = 16
TILE = 64  # positions read at once
LEAST_QUERIES = 16  # rows of a matrix product


@triton.jit
def paged_decode_partial(
    q_ptr,
    kv_ptr,
    pages_ptr,
    slots_ptr,
    positions_ptr,
    out_ptr,
    stats_ptr,
    q_row,
    kv_head_stride,
    pages_row,
    scale,
    PAGE: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Attention of one row's query heads of one kv head over one split of its positions.

    Grid [rows, kv_heads, SPLITS]. What a split covers depends on the row's own length only, so a row's result does not
    depend on the others. The loop has bounds, not a condition: only then are its loads asynchronous.
    """
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_heads = tl.num_programs(1)
    length = tl.load(positions_ptr + row).to(tl.int32) + 1
    slot = tl.load(slots_ptr + row)
    chunk = tl.cdiv(tl.cdiv(length, SPLITS), TILE) * TILE
    first = split * chunk
    last = tl.minimum(first + chunk, length)
    query, dims, tile = tl.arange(0, QUERIES), tl.arange(0, DIM), tl.arange(0, TILE)
    head = kv_head * GROUP + query
    q = tl.load(
        q_ptr + row.to(tl.int64) * q_row + head[:, None] * DIM + dims[None, :], mask=query[:, None] < GROUP, other=0.0
    )
    keys = kv_ptr + kv_head.to(tl.int64) * kv_head_stride
    values = keys + kv_heads.to(tl.int64) * kv_head_stride
    top = tl.full([QUERIES], -1.0e30, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    acc = tl.zeros([QUERIES, DIM], tl.float32)
    for start in range(first, last, TILE):
        at = start + tile
        inside = at < length
        page = tl.load(pages_ptr + slot * pages_row + at // PAGE, mask=inside, other=0)
        offsets = (page.to(tl.int64) * PAGE + at % PAGE)[:, None] * DIM + dims[None, :]
        k = tl.load(keys + offsets, mask=inside[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, -1.0e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(inside[None, :], tl.exp(scores - higher[:, None]), 0.0)
        shrink = tl.exp(top - higher)
        v = tl.load(values + offsets, mask=inside[:, None], other=0.0)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = higher
    place = (row.to(tl.int64) * kv_heads * GROUP + head) * SPLITS + split
    tl.store(stats_ptr + place * 2, top, mask=query < GROUP)
    tl.store(stats_ptr + place * 2 + 1, total, mask=query < GROUP)
    if first < last:  # an empty split leaves what is there, and the reduction does not read it
        tl.store(out_ptr + place[:, None] * DIM + dims[None, :], acc, mask=query[:, None] < GROUP)


@triton.jit
def paged_decode_reduce(partial_ptr, stats_ptr, out_ptr, DIM: tl.constexpr, SPLITS: tl.constexpr):
    """Join of a head's splits, in their order. Grid [rows, heads]."""
    place = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    split, dims = tl.arange(0, SPLITS), tl.arange(0, DIM)
    top = tl.load(stats_ptr + (place * SPLITS + split) * 2)
    total = tl.load(stats_ptr + (place * SPLITS + split) * 2 + 1)
    used = total > 0
    offsets = (place * SPLITS + split)[:, None] * DIM + dims[None, :]
    partial = tl.load(partial_ptr + offsets, mask=used[:, None], other=0.0)
    weights = tl.where(used, tl.exp(top - tl.max(top, 0)), 0.0)
    out = tl.sum(partial * weights[:, None], 0) / tl.sum(total * weights, 0)
    tl.store(out_ptr + place * DIM + dims, out.to(out_ptr.dtype.element_ty))


@triton.jit
def rotated(
    x_ptr,
    weight_ptr,
    rotation_ptr,
    eps,
    HALF: tl.constexpr,
    DIM: tl.constexpr,
    NORM: tl.constexpr,
    TYPE: tl.constexpr,
):
    """A head's even and odd elements, fp32, normalised and rotated, each step rounded to TYPE."""
    pair = tl.arange(0, HALF)
    even = tl.load(x_ptr + 2 * pair).to(tl.float32)
    odd = tl.load(x_ptr + 2 * pair + 1).to(tl.float32)
    if NORM:
        inverse = 1.0 / tl.sqrt((tl.sum(even * even, 0) + tl.sum(odd * odd, 0)) / DIM + eps)
        even = (even * inverse * tl.load(weight_ptr + 2 * pair)).to(TYPE).to(tl.float32)
        odd = (odd * inverse * tl.load(weight_ptr + 2 * pair + 1)).to(TYPE).to(tl.float32)
    cos = tl.load(rotation_ptr + 2 * pair)
    sin = tl.load(rotation_ptr + 2 * pair + 1)
    turned_even = (even * cos - odd * sin).to(TYPE).to(tl.float32)
    turned_odd = (even * sin + odd * cos).to(TYPE).to(tl.float32)
    return turned_even, turned_odd


@triton.jit
def fast_attention(
    qkv_ptr,
    weight_ptr,
    rotation_ptr,
    kv_ptr,
    out_ptr,
    start,
    rotation_row,
    eps,
    scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    LENGTH: tl.constexpr,
    POSITIONS: tl.constexpr,
    SPAN: tl.constexpr,
    DIM: tl.constexpr,
    NORM: tl.constexpr,
):
    """Norm, rotation and causal attention of a frame's next LENGTH positions for one query head. Grid [batch, HEADS].

    Every program of a kv head computes its new keys, which stay in registers; the first one writes them.
    """
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * DIM
    HALF: tl.constexpr = DIM // 2
    TYPE: tl.constexpr = kv_ptr.dtype.element_ty
    kv_head = head // GROUP
    pair, dims, at = tl.arange(0, HALF), tl.arange(0, DIM), tl.arange(0, SPAN)
    keys = kv_ptr + (batch * 2 * KV_HEADS + kv_head) * POSITIONS * DIM
    values = keys + KV_HEADS * POSITIONS * DIM
    filled = (at < start)[:, None]
    k_even = tl.load(keys + at[:, None] * DIM + 2 * pair[None, :], mask=filled, other=0.0).to(tl.float32)
    k_odd = tl.load(keys + at[:, None] * DIM + 2 * pair[None, :] + 1, mask=filled, other=0.0).to(tl.float32)
    v = tl.load(values + at[:, None] * DIM + dims[None, :], mask=filled, other=0.0).to(tl.float32)
    for index in tl.static_range(LENGTH):
        row = batch * LENGTH + index
        rotation = rotation_ptr + row * rotation_row
        k_row = qkv_ptr + row * WIDTH + (HEADS + kv_head) * DIM
        even, odd = rotated(k_row, weight_ptr + (HEADS + kv_head) * DIM, rotation, eps, HALF, DIM, NORM, TYPE)
        new_v = tl.load(k_row + KV_HEADS * DIM + dims)
        if head % GROUP == 0:
            tl.store(keys + (start + index) * DIM + 2 * pair, even.to(TYPE))
            tl.store(keys + (start + index) * DIM + 2 * pair + 1, odd.to(TYPE))
            tl.store(values + (start + index) * DIM + dims, new_v)
        here = (at == start + index)[:, None]
        k_even = tl.where(here, even[None, :], k_even)
        k_odd = tl.where(here, odd[None, :], k_odd)
        v = tl.where(here, new_v.to(tl.float32)[None, :], v)
        q_even, q_odd = rotated(
            qkv_ptr + row * WIDTH + head * DIM, weight_ptr + head * DIM, rotation, eps, HALF, DIM, NORM, TYPE
        )
        scores = (tl.sum(k_even * q_even[None, :], 1) + tl.sum(k_odd * q_odd[None, :], 1)) * scale
        scores = tl.where(at <= start + index, scores, -1.0e30)
        weights = tl.exp(scores - tl.max(scores, 0))
        out = tl.sum(v * weights[:, None], 0) / tl.sum(weights, 0)
        tl.store(out_ptr + (row * HEADS + head) * DIM + dims, out.to(TYPE))
