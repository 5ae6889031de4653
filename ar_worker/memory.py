"""Memory of the AR worker: how many KV pages fit, and what the largest prefill takes.

A prefill's peak is bounded: it grows with the tokens of a step plus the context, never with their product.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ar_worker.executor import MemoryPlanError
from ar_worker.prefill import MASK_ELEMENTS, gathered_bytes
from common.checkpoint import ModelConfig

DEFAULT_PAGES = 2048  # where the device doesn't tell its free memory
GRAPH_BYTES = 150 << 20  # of a captured frame, at most
WORKSPACE_BYTES = 512 << 20  # of libraries, and what the allocator loses
STREAM_POSITIONS = 1000  # of a usual stream: a prompt with a voice, and half a minute of sound

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MemoryNeeds:
    """Memory that a worker needs beside its weights. ``graphs``: number of captured frames."""

    model: ModelConfig
    page_size: int
    item_bytes: int
    prefill_tokens: int  # per step
    graphs: int = 0

    @property
    def page_bytes(self) -> int:
        """Of one page of the KV pool."""
        slow = self.model.slow
        return slow.n_layer * 2 * slow.n_kv_head * slow.head_dim * self.page_size * self.item_bytes

    @property
    def prefill_bytes(self) -> int:
        """Peak of the largest prefill at the longest context: activations, gathered keys and values, a mask."""
        slow = self.model.slow
        rows = self.prefill_tokens + 2 * self.page_size
        heads = (2 * slow.n_head + 2 * slow.n_kv_head) * slow.head_dim
        row = (4 * slow.dim + heads + 3 * slow.intermediate_size) * self.item_bytes + 4 * slow.dim
        gathered = gathered_bytes(slow, self.model.max_seq_len, self.page_size, self.item_bytes)
        return rows * row + 2 * gathered + MASK_ELEMENTS * (1 + self.item_bytes)

    @property
    def other_bytes(self) -> int:
        """Everything but the pool."""
        return self.prefill_bytes + self.graphs * GRAPH_BYTES + WORKSPACE_BYTES

    def check(self, pages: int, free: int) -> None:
        """Refuse a pool that leaves no room for prefills and graphs.

        Raises:
            MemoryPlanError: it would run out of memory under load.
        """
        pool = (pages + 1) * self.page_bytes
        if pool + self.other_bytes > free:
            raise MemoryPlanError(
                f"ar_worker.pages: {pages} pages take {gib(pool)}, the largest prefill {gib(self.prefill_bytes)} and"
                f" {self.graphs} graphs {gib(self.graphs * GRAPH_BYTES)}; {gib(free)} of device memory are free"
            )

    def pages_within(self, free: int, fraction: float) -> int:
        """Pages that fit into this fraction of the free memory, once everything else has its place.

        Raises:
            MemoryPlanError: not one sequence of the model's context fits.
        """
        pages = int(free * fraction - self.other_bytes) // self.page_bytes - 1
        least = -(-min(self.model.max_seq_len, STREAM_POSITIONS) // self.page_size)
        if pages < least:
            raise MemoryPlanError(
                f"ar_worker.kv_memory_fraction: {fraction:g} of {gib(free)} free device memory, less"
                f" {gib(self.other_bytes)} for prefills, graphs and libraries, holds {max(0, pages)} pages of"
                f" {self.page_bytes / (1 << 20):.2f} MiB; a stream takes {least}"
            )
        return pages


def choose_pages(pages: int, needs: MemoryNeeds, free: int | None, fraction: float) -> int:
    """Pages of the pool: those that are asked for, or, for 0, those that fit. ``free``: None if nobody knows.

    Raises:
        MemoryPlanError: they don't fit.
    """
    if free is None:
        return pages or DEFAULT_PAGES
    if pages:
        needs.check(pages, free)
    else:
        pages = needs.pages_within(free, fraction)
    told = {"pages": pages, "pool": gib((pages + 1) * needs.page_bytes), "free": gib(free)}
    streams = pages // -(-STREAM_POSITIONS // needs.page_size)
    log.info("KV pool", extra={**told, "prefill": gib(needs.prefill_bytes), "streams_of_1000_positions": streams})
    return pages


def gib(amount: int) -> str:
    """An amount of memory for a message."""
    return f"{amount / (1 << 30):.2f} GiB"
