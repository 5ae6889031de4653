"""Capacity: how many streams the workers can serve, and settings that limit each other; logged when a worker joins."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from common.config import Scheduler as Settings
from scheduler.workers.ar_worker import ArWorker
from scheduler.workers.vocoder_worker import VocoderWorker

log = logging.getLogger(__name__)


class Capacity(NamedTuple):
    """Slots of all registered workers."""

    ar_slots: int
    vocoder_slots: int

    @property
    def streams(self) -> int:
        """Streams that can be served at a time."""
        return min(self.ar_slots, self.vocoder_slots)


def capacity(ar_workers: Collection[ArWorker], vocoders: Collection[VocoderWorker]) -> Capacity:
    return Capacity(sum(worker.slots.size for worker in ar_workers), sum(worker.slots.size for worker in vocoders))


def log_capacity(ar_workers: Collection[ArWorker], vocoders: Collection[VocoderWorker], settings: Settings) -> None:
    """Log what the workers can serve at a time, and warn of settings that limit each other."""
    available = capacity(ar_workers, vocoders)
    log.info("capacity", extra={"streams": available.streams, **available._asdict()})
    for conflict in conflicts(available, ar_workers, settings):
        log.warning(conflict)


def conflicts(available: Capacity, ar_workers: Collection[ArWorker], settings: Settings) -> list[str]:
    """Settings that make others useless, described in words."""
    found = []
    if 0 < available.vocoder_slots < available.ar_slots:
        found.append(f"vocoder_worker.slots: {available.vocoder_slots} streams limit {available.ar_slots} sequences")
    for worker in ar_workers:
        slots, pages = worker.slots.size, worker.pages.size
        if settings.max_batch < slots:
            found.append(f"scheduler.max_batch: a step takes {settings.max_batch} of {worker.name}'s {slots} sequences")
        if pages < slots:
            found.append(f"ar_worker.pages: {pages} pages can't serve the {slots} slots of {worker.name}")
    return found
