"""How many streams there is room for, and which settings are in each other's way: told whenever a worker joins."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from common.config import Scheduler as Settings
from scheduler.resources.workers import ArWorker, VocoderWorker


class Capacity(NamedTuple):
    """Slots of all workers that are there."""

    ar_slots: int
    vocoder_slots: int

    @property
    def streams(self) -> int:
        """That can be served at a time."""
        return min(self.ar_slots, self.vocoder_slots)


def capacity(ar_workers: Collection[ArWorker], vocoders: Collection[VocoderWorker]) -> Capacity:
    return Capacity(sum(worker.slots.size for worker in ar_workers), sum(worker.slots.size for worker in vocoders))


def conflicts(there: Capacity, ar_workers: Collection[ArWorker], settings: Settings) -> list[str]:
    """Settings that make others useless, in words."""
    found = []
    if 0 < there.vocoder_slots < there.ar_slots:
        found.append(f"vocoder_worker.slots: {there.vocoder_slots} of {there.ar_slots} sequences sound at a time")
    for worker in ar_workers:
        slots, pages = worker.slots.size, worker.pages.size
        if settings.max_batch < slots:
            found.append(f"scheduler.max_batch: {settings.max_batch} of {slots} sequences of {worker.name} in a step")
        if pages < slots:
            found.append(f"ar_worker.pages: {pages} pages can't serve the {slots} slots of {worker.name}")
    return found
