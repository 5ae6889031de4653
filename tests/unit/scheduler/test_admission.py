"""Refusals for lateness, compared with what happens without them: hardly any is false, and most of the late are caught.

A refusal is false if the same request, in the same load without refusals, has its first sound within its deadline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pytest

from common.config import Scheduler as Settings
from common.cost_models import COST_MODELS, CostModel
from scheduler.resources.costs import Lengths
from scheduler.simulate.cluster import Cluster, Sizes
from scheduler.simulate.measure import Listener
from scheduler.simulate.workload import Workload

FAST = COST_MODELS["h200-bf16"]
SLOW = CostModel(35.0, 0.0, 0.05, 3.0, 0.08)  # a laptop: a reply takes as long as it plays
SLOTS = 4


class Verdict(NamedTuple):
    requests: int
    refused: int
    false: int
    late: int  # without refusals


def workload(arrivals: Iterable[float], seed: int) -> Workload:
    """Replies of 2 to 7 seconds, at these times."""
    times = np.sort(np.array(list(arrivals)))
    frames = np.random.default_rng(seed).integers(40, 160, len(times))
    n = len(times)
    none = np.full(n, -1)
    return Workload(1.0, times, np.full(n, 60), none, np.zeros(0), frames, np.full(n, 646), np.ones(n, bool), 20.0)


def bursts(size: int, idle: float, count: int, seed: int) -> Workload:
    """Bursts within a fifth of a second, with idle spells between them."""
    random = np.random.default_rng(seed)
    begins = np.cumsum(random.uniform(0.8 * idle, 1.2 * idle, count))
    return workload((begins[:, None] + random.uniform(0, 0.2, (count, size))).ravel(), seed)


def shifts(phases: list[tuple[float, float]], seed: int) -> Workload:
    """Poisson arrivals at rates (1/s), each for some seconds."""
    random, begin, times = np.random.default_rng(seed), 0.0, []
    for rate, seconds in phases:
        times.append(begin + np.sort(random.uniform(0, seconds, random.poisson(rate * seconds))))
        begin += seconds
    return workload(np.concatenate(times), seed)


def listen(load: Workload, cost: CostModel, refuse: bool) -> list[Listener]:
    settings = Settings(max_waiting=1000, refuse_late=refuse)
    cluster = Cluster(settings, cost, Sizes(SLOTS, 16384, 16), load, 0)
    cluster.run()
    return cluster.listeners


def judge(load: Workload, cost: CostModel) -> Verdict:
    with_refusals, without = listen(load, cost, True), listen(load, cost, False)
    late = [item.refused or item.first_audio - item.arrived > load.deadline for item in without]
    refused = [item.refused for item in with_refusals]
    false = sum(gone and not missed for gone, missed in zip(refused, late, strict=True))
    return Verdict(len(late), sum(refused), false, sum(late))


@pytest.mark.parametrize("cost", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("idle", [15.0, 60.0, 100.0])
def test_bursts_of_three_times_the_slots_are_all_served_after_any_idle_time(cost: CostModel, idle: float) -> None:
    verdict = judge(bursts(3 * SLOTS, idle, count=6, seed=1), cost)
    assert (verdict.refused, verdict.late) == (0, 0)


def test_of_bursts_beyond_what_can_be_served_in_time_the_late_are_refused_at_once() -> None:
    verdict = judge(bursts(40, 80.0, count=6, seed=2), SLOW)
    assert verdict.false <= 0.01 * verdict.requests
    assert verdict.refused >= 0.9 * (verdict.late - 20)  # nothing is known yet of the first burst
    assert verdict.late > 80


@pytest.mark.parametrize("seed", [3, 4])
def test_shifts_of_load_make_hardly_any_refusal_false(seed: int) -> None:
    verdict = judge(
        shifts([(0.1, 100.0), (1.2, 60.0), (0.1, 60.0), (2.0, 60.0), (0.02, 200.0), (1.2, 60.0)], seed), SLOW
    )
    assert verdict.false <= 0.01 * verdict.requests
    assert verdict.late > 20
    assert verdict.refused >= 0.5 * verdict.late


def test_lengths_are_predicted_at_least_and_forgotten() -> None:
    lengths = Lengths()
    assert lengths.at_least(10) == 0.0
    for _ in range(20):
        lengths.add(100)
    assert lengths.at_least(10) == pytest.approx(1000)
    lengths.add(20)
    assert lengths.at_least(10) < 900, "the more they differ, the less is certain"
    lengths.forget(100.0)
    assert lengths.at_least(10) == 0.0, "after a long pause others may come"
