"""The draw: ranking, filtering, hash noise and choice in one kernel, for one draw or the main token's two."""

from __future__ import annotations

import triton
import triton.language as tl

WINDOW_BLOCK = 16


@triton.jit
def sort_key(logit, index):
    """uint64 that orders by logit, equal ones by the lower index."""
    bits = tl.where(logit == 0.0, 0.0, logit).to(tl.uint32, bitcast=True)
    negative = (bits >> 31) != 0
    ordered = tl.where(negative, ~bits, bits | 0x80000000)
    return (ordered.to(tl.uint64) << 32) | (0xFFFFFFFF - index.to(tl.uint64))


@triton.jit
def mixed(x):
    """Two rounds of splitmix64's finaliser on uint64."""
    x = (x ^ (x >> 30)) * tl.full([], 0xBF58476D1CE4E5B9, tl.uint64)
    return (x ^ (x >> 27)) * tl.full([], 0x94D049BB133111EB, tl.uint64)


@triton.jit
def choice(scores, mass, ids, key, temperature, limits):
    """The id whose log(u) / p is largest, the best ranked of equal ones; fp64 as in the twin."""
    kept = mass <= limits
    weight = tl.where(kept, tl.exp(scores / temperature), 0.0).to(tl.float64)
    golden = tl.full([], 0x9E3779B97F4A7C15, tl.uint64)
    bits = mixed(key.to(tl.uint64, bitcast=True) + ids.to(tl.uint64) * golden) >> 12
    uniform = bits.to(tl.float64) * 2.220446049250313e-16 + 1.1102230246251565e-16
    value = tl.where(weight > 0.0, tl.log(uniform) / tl.where(weight > 0.0, weight, 1.0), -float("inf"))
    rank = tl.arange(0, ids.shape[0])
    best = tl.min(tl.where(value == tl.max(value, 0), rank, ids.shape[0]), 0)
    return tl.sum(tl.where(rank == best, ids, 0), 0)


@triton.jit
def draw(
    logits_ptr,
    ids_ptr,
    keys_ptr,
    temperature_ptr,
    limits_ptr,
    window_ptr,
    checked_ptr,
    out_ptr,
    logits_row,
    keys_row,
    temperature_row,
    temperature_draw,
    limits_row,
    limits_draw,
    window_row,
    count,
    window,
    end_id,
    TOKEN: tl.constexpr,
    EXTRA: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK: tl.constexpr,
    WINDOW_BLOCK: tl.constexpr,
):
    """One index (or, for TOKEN, one of ``ids``) per row of logits [rows, count]. Grid [rows].

    EXTRA: count is BLOCK + 1, and the last logit is ranked by itself, so that the block is a power of two.
    """
    row, column, rank = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK), tl.arange(0, RANKS)
    here = logits_ptr + row * logits_row
    logits = tl.load(here + column, mask=column < count, other=-float("inf")).to(tl.float32)
    top = tl.max(logits, 0)
    keys = tl.topk(sort_key(logits, column), RANKS)
    if EXTRA:
        last = tl.load(here + BLOCK).to(tl.float32)
        top = tl.maximum(top, last)
        other = sort_key(tl.full([RANKS], 0.0, tl.float32) + last, tl.full([RANKS], BLOCK, tl.int32))
        keys = tl.where((rank == RANKS - 1) & (other > keys), other, keys)
        keys = tl.sort(keys, descending=True)
    total = tl.sum(tl.exp(logits - top), 0)
    if EXTRA:
        total += tl.exp(last - top)
    ids = (0xFFFFFFFF - (keys & 0xFFFFFFFF)).to(tl.int64)
    ordered = (keys >> 32).to(tl.uint32)
    bits = tl.where((ordered >> 31) != 0, ordered & 0x7FFFFFFF, ~ordered)
    scores = bits.to(tl.float32, bitcast=True) - top
    mass = tl.cumsum(tl.exp(scores) / total, 0)
    if TOKEN:
        ids = tl.load(ids_ptr + ids)
    temperature = temperature_ptr + row * temperature_row
    limits = limits_ptr + row * limits_row + rank
    key = keys_ptr + row * keys_row
    drawn = choice(scores, mass, ids, tl.load(key), tl.load(temperature), tl.load(limits))
    if TOKEN:
        again = choice(
            scores, mass, ids, tl.load(key + 1), tl.load(temperature + temperature_draw), tl.load(limits + limits_draw)
        )
        index = tl.arange(0, WINDOW_BLOCK)
        recent = tl.load(window_ptr + row * window_row + index, mask=index < window, other=-1)
        repeated = tl.max((recent == drawn).to(tl.int32), 0) != 0
        repeated = repeated & (tl.load(checked_ptr + row) != 0) & (drawn != end_id)
        drawn = tl.where(repeated, again, drawn)
    tl.store(out_ptr + row, drawn)
