"""Attention of prefills: the pages of a sequence are gathered once per layer, then read by all of its blocks.

Memory: besides the activations of the step's rows, the largest temporaries are one sequence's keys and values of one
layer (:func:`gathered_bytes`) and a mask of at most :data:`MASK_ELEMENTS` elements with its float copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from ar_worker.attention import fold_heads, page_bucket, unfold_heads
from ar_worker.ops import HeadNorm, qk_norm_rope_write
from ar_worker.step_inputs import Put
from ar_worker.step_rows import PageGroup, PrefillPlan, Span
from common.checkpoint import StackConfig

MASK_ELEMENTS = 1 << 22


def gathered_bytes(config: StackConfig, positions: int, page_size: int, item_bytes: int) -> int:
    """Bytes of the keys and values that one layer gathers for a sequence of so many positions."""
    keys = page_bucket(-(-positions // page_size)) * page_size
    return 2 * config.n_kv_head * config.head_dim * keys * item_bytes


class SpanInputs(NamedTuple):
    """A span with its tensors."""

    span: Span
    pages: Tensor  # int64 [n]
    positions: Tensor  # int64 [blocks, 1, page_size * heads per kv head, 1], of the folded queries


class PrefillAttention:
    """Attention of the prefills of one step, called once per layer; see :data:`ar_worker.model.Attend`.

    Args:
        pool: keys and values of all layers; written in place.
        whole: attend to a span's queries in one call rather than block by block. Quicker on CUDA; the results then
            depend on how a prompt is cut.
    """

    def __init__(
        self, pool: Tensor, page_size: int, writes: Tensor, spans: Sequence[SpanInputs], whole: bool = False
    ) -> None:
        self._writes, self._spans, self._size, self._whole = writes, spans, page_size, whole
        layers, _, self._kv_heads, _, head_dim = pool.shape
        self._flat = pool.flatten(1, 2)
        self._paged = pool.view(layers, 2 * self._kv_heads, -1, page_size * head_dim)
        longest = max(len(item.span.pages) for item in spans) * page_size
        self._keys = torch.arange(longest, device=pool.device)

    def __call__(self, layer: int, qkv: Tensor, norm: HeadNorm) -> Tensor:
        """qkv [rows, heads + 2 * kv_heads, head_dim]: [rows, heads * head_dim], zeros for padding behind the spans."""
        qk_norm_rope_write(qkv, norm, self._flat[layer], self._writes)
        heads = qkv.shape[1] - 2 * self._kv_heads
        out = qkv.new_zeros(len(qkv), heads * qkv.shape[2])
        for item in self._spans:
            k, v = self._gather(layer, item)
            if self._whole:
                self._attend_whole(out, qkv[:, :heads], k, v, item.span)
            else:
                self._attend_blocks(out, qkv[:, :heads], k, v, item)
        return out

    def _gather(self, layer: int, item: SpanInputs) -> tuple[Tensor, Tensor]:
        """Keys and values [kv_heads, positions, head_dim] of the span's sequence."""
        kv = self._paged[layer].index_select(1, item.pages)
        kv = kv.view(2, self._kv_heads, len(item.pages) * self._size, -1)
        return kv[0], kv[1]

    def _attend_blocks(self, out: Tensor, q: Tensor, k: Tensor, v: Tensor, item: SpanInputs) -> None:
        folded = item.positions.shape[2]
        for group in item.span.groups:
            keys = group.pages * self._size
            most = max(1, MASK_ELEMENTS // (folded * keys))
            for start, stop in _pieces(group, most):
                visible = self._keys[:keys] <= item.positions[start:stop]
                rows = slice(item.span.first_row + start * self._size, item.span.first_row + stop * self._size)
                blocks = fold_heads(q[rows], stop - start, self._kv_heads)
                keys_of, values_of = (part[:, :keys].expand(stop - start, -1, -1, -1) for part in (k, v))
                out[rows] = unfold_heads(
                    F.scaled_dot_product_attention(blocks, keys_of, values_of, attn_mask=visible), self._size
                )

    def _attend_whole(self, out: Tensor, q: Tensor, k: Tensor, v: Tensor, span: Span) -> None:
        first = span.first_row + span.start % self._size
        rows = slice(first, first + span.end - span.start)
        keys, values = k[None, :, : span.end], v[None, :, : span.end]
        mask = causal_lower_right(span.end - span.start, span.end)
        attended = F.scaled_dot_product_attention(
            q[rows].transpose(0, 1)[None], keys, values, attn_mask=mask, enable_gqa=True
        )
        out[rows] = attended[0].transpose(0, 1).flatten(1)


def span_inputs(plan: PrefillPlan, heads_per_kv: int, page_size: int, put: Put) -> list[SpanInputs]:
    """The spans of a plan with their tensors."""
    return [_span_inputs(span, plan, heads_per_kv, page_size, put) for span in plan.spans]


def _span_inputs(span: Span, plan: PrefillPlan, heads_per_kv: int, page_size: int, put: Put) -> SpanInputs:
    blocks = span.groups[-1].stop
    positions = plan.positions[span.first_row : span.first_row + blocks * page_size]
    folded = positions.reshape(blocks, 1, page_size, 1).repeat(heads_per_kv, 3).reshape(blocks, 1, -1, 1)
    return SpanInputs(span, put(span.pages), put(folded))


def _pieces(group: PageGroup, most: int) -> Iterator[tuple[int, int]]:
    for start in range(group.start, group.stop, most):
        yield start, min(start + most, group.stop)
