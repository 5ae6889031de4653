"""Attention over KV pages: the plain PyTorch version, for any device.

The pool holds the keys and values of all sequences: ``[layers, 2, kv_heads, positions, head_dim]``, where page ``p`` is
positions ``p * page_size`` and following. Its last page is a scratch page: padding rows write and read there.

Rows are attended in groups of equal shape. What shape a row's attention has depends on its own position alone, never on
the other rows of the step, so that its result does not depend on them either: a decode is one query over its pages; a
prompt is cut into blocks of one page each, at absolute page boundaries. The number of pages read is rounded up to a few
sizes (:func:`page_bucket`), and what lies beyond the query is masked.
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


class Group(NamedTuple):
    """Consecutive rows of a step: G blocks of M queries, each block over n pages of its own."""

    pages: Tensor  # int64 [G * n]
    mask: Tensor  # additive, [G, 1, M * (heads per kv head), n * page_size]
    queries: int  # M


def causal_mask(positions: Tensor, keys: int, heads_per_kv: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [G, 1, M * heads_per_kv, keys] of queries at ``positions`` [G, M] over keys at 0, 1, 2, ..."""
    hidden = torch.arange(keys, device=positions.device) > positions[..., None, None]  # [G, M, 1, keys]
    mask = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, -torch.inf)
    return mask.expand(-1, -1, heads_per_kv, -1).flatten(1, 2).unsqueeze(1)


def fold_heads(q: Tensor, blocks: int, kv_heads: int) -> Tensor:
    """[blocks * M, heads, head_dim] to [blocks, kv_heads, M * heads / kv_heads, head_dim], by the kv head they use."""
    rows, heads, head_dim = q.shape
    q = q.view(blocks, rows // blocks, kv_heads, heads // kv_heads, head_dim)
    return q.transpose(1, 2).reshape(blocks, kv_heads, -1, head_dim)


def unfold_heads(out: Tensor, queries: int) -> Tensor:
    """The inverse of :func:`fold_heads`, heads joined: [blocks * M, heads * head_dim]."""
    blocks, kv_heads, folded, head_dim = out.shape
    out = out.view(blocks, kv_heads, queries, folded // queries, head_dim).transpose(1, 2)
    return out.reshape(blocks * queries, -1)


class PagedAttention:
    """Attention of one step, called once per layer.

    Args:
        pool: keys and values, as above; written in place.
        writes: int64 [rows], where each row's key and value go.
        groups: the rows' groups, in the rows' order.
    """

    def __init__(self, pool: Tensor, page_size: int, writes: Tensor, groups: Sequence[Group]) -> None:
        self._pool, self._writes, self._groups = pool, writes, groups
        layers, _, self._kv_heads, _, head_dim = pool.shape
        self._flat = pool.flatten(1, 2)
        self._paged = pool.view(layers, 2 * self._kv_heads, -1, page_size * head_dim)

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """qkv [rows, heads + 2 * kv_heads, head_dim]: [rows, heads * head_dim]."""
        heads = qkv.shape[1] - 2 * self._kv_heads
        self._flat[layer].index_copy_(1, self._writes, qkv[:, heads:].transpose(0, 1))
        q = qkv[:, :heads]
        outputs, row = [], 0
        for group in self._groups:
            rows = group.mask.shape[0] * group.queries
            outputs.append(self._attend(layer, q[row : row + rows], group))
            row += rows
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _attend(self, layer: int, q: Tensor, group: Group) -> Tensor:
        blocks, keys = group.mask.shape[0], group.mask.shape[-1]
        kv = self._paged[layer].index_select(1, group.pages)
        k, v = kv.view(2, self._kv_heads, blocks, keys, q.shape[-1]).transpose(1, 2)
        out = F.scaled_dot_product_attention(fold_heads(q, blocks, self._kv_heads), k, v, attn_mask=group.mask)
        return unfold_heads(out, group.queries)


class FrameAttention:
    """Causal attention of the fast stack within one frame, called once per layer and pass.

    Args:
        kv: room for keys and values, ``[layers, batch, 2 * kv_heads, codebooks, head_dim]``; needs no initial value.
    """

    def __init__(self, kv: Tensor) -> None:
        self.positions = range(0)
        self._batch, self._kv_heads = kv.shape[1], kv.shape[2] // 2
        keys, values = kv.chunk(2, 2)
        self._keys, self._values = keys.unbind(0), values.unbind(0)
        self._places = [layer.unbind(2) for layer in kv.unbind(0)]

    def advance(self, length: int) -> None:
        """The next pass is over so many further positions; only the first may be over more than one."""
        self.positions = range(self.positions.stop, self.positions.stop + length)

    def __call__(self, layer: int, qkv: Tensor) -> Tensor:
        """qkv [batch * length, heads + 2 * kv_heads, head_dim]: [batch * length, heads * head_dim]."""
        length, end = len(self.positions), self.positions.stop
        heads, mask = qkv.shape[1] - 2 * self._kv_heads, None
        for position in self.positions:
            self._places[layer][position].copy_(qkv[position % length :: length, heads:])
        q = fold_heads(qkv[:, :heads], self._batch, self._kv_heads)
        if length > 1:
            at = torch.arange(length, device=qkv.device)[None]
            mask = causal_mask(at, length, heads // self._kv_heads, qkv.dtype)
        k, v = self._keys[layer].narrow(2, 0, end), self._values[layer].narrow(2, 0, end)
        return unfold_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask), length)
