"""Attention over KV pages: the plain PyTorch versions, for any device.

The pool holds the keys and values of all sequences: ``[layers, 2, kv_heads, positions, head_dim]``, where page ``p`` is
positions ``p * page_size`` and following. Its last page is a scratch page: padding rows write there.

The shapes of a row's attention depend on its own position alone, never on the other rows of the step, so its result
does not depend on them either: a decode is one query over its pages; a prompt is cut into blocks of one page each, at
absolute page boundaries. The number of pages read is rounded up to a few sizes (:func:`page_bucket`), and what lies
beyond the query is masked. The pool never holds NaN or infinity, since a mask does not hide those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_BUCKET = 4  # pages


def page_bucket(pages: int) -> int:
    """``pages`` rounded up to 4, 6, 8, 12, 16, 24, 32, ..."""
    size = SMALLEST_BUCKET
    while size < pages:
        if size + size // 2 >= pages:
            return size + size // 2
        size *= 2
    return size


def causal_mask(positions: Tensor, keys: int, heads_per_kv: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [G, 1, M * heads_per_kv, keys] of queries at ``positions`` [G, M] over keys at 0, 1, 2, ..."""
    hidden = torch.arange(keys, device=positions.device) > positions[..., None, None]  # [G, M, 1, keys]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, -torch.inf)
    return mask.expand(-1, -1, heads_per_kv, -1).flatten(1, 2).unsqueeze(1)


def fold_heads(q: Tensor, blocks: int, kv_heads: int) -> Tensor:
    """[blocks * M, heads, head_dim] to [blocks, kv_heads, M * heads / kv_heads, head_dim], by the kv head they use."""
    rows, heads, head_dim = q.shape
    if rows == blocks:
        return q.view(rows, kv_heads, heads // kv_heads, head_dim)
    q = q.view(blocks, rows // blocks, kv_heads, heads // kv_heads, head_dim)
    return q.transpose(1, 2).reshape(blocks, kv_heads, -1, head_dim)


def unfold_heads(out: Tensor, queries: int) -> Tensor:
    """The inverse of :func:`fold_heads`, heads joined: [blocks * M, heads * head_dim]."""
    if queries == 1:
        return out.flatten(1)
    blocks, kv_heads, folded, head_dim = out.shape
    out = out.view(blocks, kv_heads, queries, folded // queries, head_dim).transpose(1, 2)
    return out.reshape(blocks * queries, -1)


class DecodeGroup(NamedTuple):
    """Consecutive decode rows that read equally many pages."""

    rows: slice
    pages: Tensor  # int32 or int64 [rows * n]
    mask: Tensor  # additive, [rows, 1, 1, n * page_size]


def decode_group(rows: slice, pages: Tensor, positions: Tensor, page_size: int, dtype: torch.dtype) -> DecodeGroup:
    """The group of rows with pages [rows, n] whose queries stand at ``positions`` [rows]."""
    keys = pages.shape[1] * page_size
    hidden = torch.arange(keys, device=pages.device) > positions[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=pages.device).masked_fill_(hidden, -torch.inf)
    return DecodeGroup(rows, pages.flatten(), mask[:, None, None])


def decode_attention(q: Tensor, kv: Tensor, groups: Sequence[DecodeGroup], page_size: int, out: Tensor) -> Tensor:
    """Attention of one query per row over its pages.

    Args:
        q: [B, heads, head_dim], rotated.
        kv: [2 * kv_heads, positions, head_dim], one layer of the pool.
        groups: the rows that count.
        out: [B, heads * head_dim], takes the groups' rows and keeps the others.

    Returns:
        [B, heads * head_dim], perhaps ``out``.
    """
    if len(groups) == 1 and groups[0].rows == slice(0, len(q)):
        return _decode_group(q, kv, groups[0], page_size)
    for group in groups:
        out[group.rows] = _decode_group(q[group.rows], kv, group, page_size)
    return out


def _decode_group(q: Tensor, kv: Tensor, group: DecodeGroup, page_size: int) -> Tensor:
    rows, keys = group.mask.shape[0], group.mask.shape[-1]
    kv_heads, head_dim = kv.shape[0] // 2, kv.shape[2]
    paged = kv.view(2 * kv_heads, -1, page_size * head_dim)
    gathered = paged.index_select(1, group.pages).view(2 * kv_heads, rows, keys, head_dim)
    k, v = gathered.view(2, kv_heads, rows, keys, head_dim).transpose(1, 2)
    return unfold_heads(F.scaled_dot_product_attention(fold_heads(q, rows, kv_heads), k, v, attn_mask=group.mask), 1)


def paged_decode(q: Tensor, kv: Tensor, pages: Tensor, slots: Tensor, positions: Tensor, page_size: int) -> Tensor:
    """Attention of one query per row over its pages, of the same shapes for any length: what a graph captures.

    This twin of the kernel reads every page of the table, so it is for small tables only.

    Args:
        q: [B, heads, head_dim], rotated.
        kv: [2 * kv_heads, positions, head_dim], one layer of the pool.
        pages: int32 [slots, width], the page table.
        slots: int64 [B], of the rows.
        positions: int64 [B], each row's own; it attends to this one and those before.

    Returns:
        [B, heads * head_dim].
    """
    group = decode_group(slice(0, len(q)), pages.index_select(0, slots), positions, page_size, q.dtype)
    return _decode_group(q, kv, group, page_size)
