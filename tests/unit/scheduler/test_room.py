"""Isolation between clients: long prompts and bursts cause no underruns of others, on the simulator's clock."""

from __future__ import annotations

import numpy as np

from common.config import Scheduler as Settings
from common.cost_models import COST_MODELS
from scheduler.simulate.cluster import Cluster, Sizes
from scheduler.simulate.measure import Listener
from scheduler.simulate.workload import Workload

SIZES = Sizes(slots=512, pages=31_250, page_size=16)


def listen(arrivals: list[float], tokens: list[int], frames: list[int]) -> list[Listener]:
    """Serve these requests, streamed, on the h200-bf16 cost model."""
    n = len(arrivals)
    lengths = np.array(frames)
    workload = Workload(
        rate=1.0,
        arrivals=np.array(arrivals),
        own_tokens=np.array(tokens),
        voices=np.full(n, -1),
        voice_tokens=np.zeros(0),
        frames=lengths,
        max_frames=lengths,
        streaming=np.ones(n, bool),
    )
    cluster = Cluster(Settings(), COST_MODELS["h200-bf16"], SIZES, workload, warm_up=0)
    cluster.run()
    return cluster.listeners


def test_a_prompt_of_twenty_thousand_tokens_stalls_nobody() -> None:
    streams = 16
    listeners = listen(
        arrivals=[0.1 * n for n in range(streams)] + [4.0],
        tokens=[300] * streams + [20_000],
        frames=[400] * streams + [50],
    )
    assert all(listener.underrun == 0 for listener in listeners)


def test_a_burst_of_two_hundred_leaves_the_others_gaps_as_they_were() -> None:
    streams, burst = 16, 200
    listeners = listen(
        arrivals=[0.1 * n for n in range(streams)] + [4.0] * burst,
        tokens=[300] * streams + [200] * burst,
        frames=[400] * streams + [60] * burst,
    )
    assert all(listener.underrun == 0 for listener in listeners[:streams])
