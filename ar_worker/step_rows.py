"""The rows of a step plan, on the host: index arithmetic in NumPy.

A frame has one row for each decode and each sampled prefill, and padding. A prefill has blocks of one page each: a
block begins at a page boundary, and its positions outside the span are padding that writes to the scratch page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ar_worker.attention import page_bucket
from ar_worker.slot_table import Limits, SlotTable
from common.messages import Array, Prefill


class PageGroup(NamedTuple):
    """Rows or blocks ``start`` to ``stop``, which read ``pages`` pages each."""

    start: int
    stop: int
    pages: int


class FramePlan(NamedTuple):
    """Rows of a frame: decodes in the order of the pages they read, sampled prefills, padding."""

    slots: Array  # int64 [B]
    advance: Array  # int64 [B, 2], what to add to length and frame number
    prefilled: Array  # bool [B]
    begins: Array  # bool [B]
    groups: list[PageGroup]  # of the decodes
    order: Array  # int64 [n], row of each output: sampled prefills in the plan's order, then decodes


def plan_frame(prefills: Sequence[Prefill], decodes: Array, table: SlotTable, limits: Limits, bucket: int) -> FramePlan:
    """Rows of the frame of an applied plan, padded to ``bucket``."""
    sampled = [item for item in prefills if item.sample]
    buckets = page_buckets(table.lengths[decodes] // limits.page_size)
    order = np.argsort(buckets, kind="stable")
    count, outputs = decodes.size, decodes.size + len(sampled)
    slots = np.full(bucket, limits.slots, np.int64)
    slots[:count] = decodes[order]
    slots[count:outputs] = [item.slot for item in sampled]
    advance, prefilled, begins = np.ones((bucket, 2), np.int64), np.ones(bucket, bool), np.zeros(bucket, bool)
    advance[count:, 0], prefilled[:count] = 0, False
    begins[count:outputs] = [item.recent is None for item in sampled]
    rows = np.concatenate([np.arange(count, outputs), np.argsort(order, kind="stable")])
    return FramePlan(slots, advance, prefilled, begins, list(page_groups(buckets[order])), rows)


class Span(NamedTuple):
    """The blocks of one prefill, in order: rows ``first_row`` and following, ``page_size`` each."""

    first_row: int
    start: int  # positions
    end: int
    pages: Array  # int64 [n] of its sequence, rounded up to a bucket with the scratch page
    groups: list[PageGroup]  # of the blocks


class PrefillPlan(NamedTuple):
    """Rows of the prefills of a step."""

    prompt: Array  # int64 [N, 11]
    positions: Array  # int64 [N]
    writes: Array  # int64 [N], position in the pool
    spans: list[Span]
    last_rows: Array  # int64 [sampled prefills], in the plan's order
    last_slots: Array  # int64 [sampled prefills]


def plan_prefill(
    prefills: Sequence[Prefill], prompt: Array, table: SlotTable, limits: Limits, multiple: int
) -> PrefillPlan:
    """Rows of the prefills of an applied plan, padded to a multiple of ``multiple``."""
    size, columns, positions, writes, spans, last, first = limits.page_size, [], [], [], [], [], 0
    offset = 0
    for item in prefills:
        end = item.start + item.tokens
        pages = np.arange(item.start // size, (end - 1) // size + 1)
        at = (pages[:, None] * size + np.arange(size)).ravel()
        inside = (at >= item.start) & (at < end)
        columns.append(np.where(inside, offset + at - item.start, offset))
        owned = table.pages[item.slot, pages]
        writes.append(np.where(inside, np.repeat(owned, size) * size + at % size, limits.pages * size))
        positions.append(np.minimum(at, limits.table_width * size - 1))
        spans.append(_span(first, item, pages, table.pages[item.slot], limits))
        last.append(first + end - 1 - pages[0] * size)
        first, offset = first + at.size, offset + item.tokens
    padding = -first % multiple
    columns.append(np.zeros(padding, np.int64))
    positions.append(np.zeros(padding, np.int64))
    writes.append(np.full(padding, limits.pages * size))
    sampled = [index for index, item in enumerate(prefills) if item.sample]
    return PrefillPlan(
        prompt=prompt[:, np.concatenate(columns)].T.astype(np.int64),
        positions=np.concatenate(positions),
        writes=np.concatenate(writes),
        spans=spans,
        last_rows=np.array(last, np.int64)[sampled],
        last_slots=np.array([prefills[index].slot for index in sampled], np.int64),
    )


def _span(first_row: int, item: Prefill, pages: Array, owned: Array, limits: Limits) -> Span:
    buckets = page_buckets(pages)
    read = np.full(buckets[-1], limits.pages, np.int64)
    has = owned[: min(buckets[-1], pages[-1] + 1)]
    read[: len(has)] = has
    return Span(first_row, item.start, item.start + item.tokens, read, list(page_groups(buckets)))


def page_buckets(last_page: Array) -> Array:
    """Pages to read, int64, for rows whose position is on these pages of their sequences."""
    return np.array([page_bucket(page + 1) for page in last_page.tolist()], np.int64)


def page_groups(buckets: Array) -> Iterator[PageGroup]:
    """Runs of equal buckets; ``buckets`` ascend."""
    stops = [*np.flatnonzero(np.diff(buckets)) + 1, buckets.size]
    start = 0
    for stop in stops:
        if stop > start:
            yield PageGroup(start, int(stop), int(buckets[start]))
        start = int(stop)
