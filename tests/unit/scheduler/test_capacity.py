"""Capacity of a group, and warnings about settings that limit each other."""

from __future__ import annotations

import pytest

from common.config import Scheduler as Settings
from scheduler.workers.capacity import Capacity, capacity, conflicts
from tests.unit.scheduler.world import World


def test_the_capacity_is_the_least_of_both_kinds_and_is_reached() -> None:
    world = World(Settings(max_first_chunk=1))
    for _ in range(2):
        world.join_ar(slots=3)
    world.join_vocoder(slots=5)
    there = capacity(world.core.ar_workers.values(), world.core.vocoders.values())
    assert (there, there.streams) == (Capacity(6, 5), 5)
    for _ in range(9):
        world.submit([3], [6])
    assert len(world.core.requests) == there.streams


@pytest.mark.parametrize(
    ("slots", "vocoder_slots", "pages", "max_batch", "named"),
    [
        (4, 8, 64, 16, []),
        (4, 3, 64, 16, ["vocoder_worker.slots"]),
        (4, 8, 64, 3, ["scheduler.max_batch"]),
        (4, 8, 3, 16, ["ar_worker.pages"]),
    ],
)
def test_settings_that_limit_each_other_are_named(
    slots: int, vocoder_slots: int, pages: int, max_batch: int, named: list[str]
) -> None:
    world = World(Settings(max_batch=max_batch))
    world.join_ar(slots=slots, pages=pages)
    world.join_vocoder(slots=vocoder_slots)
    ar_workers = world.core.ar_workers.values()
    found = conflicts(capacity(ar_workers, world.core.vocoders.values()), ar_workers, world.core.settings)
    assert [conflict.partition(":")[0] for conflict in found] == named
