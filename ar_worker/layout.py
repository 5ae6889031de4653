"""From a step plan to the rows of the forward pass: index arithmetic, on the host, in NumPy.

Rows are the decodes (sorted by how many pages they read), then blocks of one page for the prefills. A block begins at
a page boundary; its positions outside the prefill's span are padding, as are extra decode rows. Padding rows belong to
the scratch slot (number ``slots``) and write to the scratch page (number ``pages``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ar_worker.attention import page_bucket
from ar_worker.slot_table import Limits, SlotTable
from common.messages import Array, Prefill, StepPlan


@dataclass(frozen=True)
class BlockGroup:
    """Blocks of ``queries`` rows that read the same number of pages."""

    queries: int
    pages: Array  # int64 [blocks, n]


class Samples(NamedTuple):
    """The rows that yield a frame: sampled prefills, decodes in the plan's order, padding."""

    rows: Array  # int64 [S], among the rows of the step
    slots: Array  # int64 [S]
    frames: Array  # int64 [S], number of the frame that is drawn
    begins: Array  # bool [S], drawn by a prefill: it begins a turn
    outputs: int  # how many are no padding


@dataclass(frozen=True)
class Layout:
    """The rows of a step: N in all, the first D of them decodes."""

    decode_slots: Array  # int64 [D]
    prompt: Array  # int64 [N - D, 11]
    positions: Array  # int64 [N]
    writes: Array  # int64 [N], position in the pool
    groups: list[BlockGroup]
    samples: Samples


def build_layout(
    plan: StepPlan, prompt: Array, decodes: Array, table: SlotTable, limits: Limits, multiple: int
) -> Layout:
    """Rows of an applied plan. Both all rows and those that yield frames are padded to a multiple of ``multiple``."""
    size, scratch = limits.page_size, limits.slots
    blocks = _prefill_blocks(plan.prefills, size)
    decode_slots = _padded(decodes, -(len(decodes) + blocks.page.size * size) % multiple, scratch)
    order = np.argsort(_buckets(table.lengths[decode_slots] // size), kind="stable")
    decode_slots = decode_slots[order]
    lengths = table.lengths[decode_slots]

    positions = blocks.page[:, None] * size + np.arange(size)
    inside = (positions >= blocks.start[:, None]) & (positions < blocks.end[:, None])
    columns = np.where(inside, blocks.offset[:, None] + positions - blocks.start[:, None], 0)
    writes = np.where(inside, _pool_positions(blocks.slot[:, None], positions, table, size), limits.pages * size)

    prefill_rows = decode_slots.size + _last_rows(plan.prefills, blocks, size)
    decode_rows = np.argsort(order, kind="stable")[: decodes.size]
    return Layout(
        decode_slots=decode_slots,
        prompt=prompt[:, columns.ravel()].T.astype(np.int64),
        positions=np.concatenate([lengths, positions.ravel()]),
        writes=np.concatenate([_pool_positions(decode_slots, lengths, table, size), writes.ravel()]),
        groups=[
            *_groups(1, decode_slots, lengths // size, table, limits),
            *_groups(size, blocks.slot, blocks.page, table, limits),
        ],
        samples=_samples(plan.prefills, prefill_rows, decodes, decode_rows, table, multiple),
    )


def _samples(
    prefills: Sequence[Prefill],
    prefill_rows: Array,
    decodes: Array,
    decode_rows: Array,
    table: SlotTable,
    multiple: int,
) -> Samples:
    chosen = [
        (row, item.slot, item.frame, item.recent is None)
        for row, item in zip(prefill_rows, prefills, strict=True)
        if item.sample
    ]
    rows, slots, frames, begins = np.array(chosen, np.int64).reshape(-1, 4).T
    outputs = slots.size + decodes.size
    padding, scratch = -outputs % multiple, table.assigned.size - 1
    return Samples(
        rows=_padded(np.concatenate([rows, decode_rows]), padding, 0),
        slots=_padded(np.concatenate([slots, decodes]), padding, scratch),
        frames=_padded(np.concatenate([frames, table.frames[decodes] + 1]), padding, 0),
        begins=_padded(begins, decodes.size + padding, 0).astype(bool),
        outputs=outputs,
    )


class _Blocks(NamedTuple):
    """Blocks of the prefills, in order of the pages they read; all int64 [blocks]."""

    prefill: Array  # index into the plan's prefills
    slot: Array
    page: Array  # which page of its sequence
    start: Array  # span of the prefill
    end: Array
    offset: Array  # of the span in the prompt array


def _prefill_blocks(prefills: Sequence[Prefill], size: int) -> _Blocks:
    rows, offset = [], 0
    for index, item in enumerate(prefills):
        end = item.start + item.tokens
        pages = range(item.start // size, (end - 1) // size + 1)
        rows += [(index, item.slot, page, item.start, end, offset) for page in pages]
        offset += item.tokens
    columns = np.array(rows, np.int64).reshape(-1, 6)
    return _Blocks(*columns[np.argsort(_buckets(columns[:, 2]), kind="stable")].T)


def _last_rows(prefills: Sequence[Prefill], blocks: _Blocks, size: int) -> Array:
    """Row of each prefill's last position among the rows of the blocks."""
    ends = np.array([item.start + item.tokens for item in prefills], np.int64)
    rows = np.zeros(len(prefills), np.int64)
    final = np.flatnonzero(blocks.page == (blocks.end - 1) // size)
    rows[blocks.prefill[final]] = final * size
    return rows + (ends - 1) % size


def _buckets(last_page: Array) -> Array:
    return np.array([page_bucket(page + 1) for page in last_page.tolist()], np.int64)


def _padded(values: Array, count: int, fill: int) -> Array:
    return np.concatenate([values, np.full(count, fill)]).astype(np.int64)


def _pool_positions(slots: Array, positions: Array, table: SlotTable, size: int) -> Array:
    pages = table.pages[slots, np.minimum(positions // size, table.pages.shape[1] - 1)]
    return pages * size + positions % size


def _groups(queries: int, slots: Array, last_page: Array, table: SlotTable, limits: Limits) -> Iterator[BlockGroup]:
    """Runs of blocks that read equally many pages; pages a sequence doesn't have are the scratch page."""
    buckets = _buckets(last_page)
    for bucket in np.unique(buckets):
        pages = table.pages[slots[buckets == bucket], :bucket]
        yield BlockGroup(queries, np.where(pages < 0, limits.pages, pages))
