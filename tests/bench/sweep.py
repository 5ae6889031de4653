"""Throughput and first sound by concurrency: a closed loop through the real processes, beside the simulator.

    python -m tests.bench.sweep --preset h200-s21-fp8 --clients 1 8 64

Workers are cost-model executors; they don't slow each other down, so the simulator runs without contention as well.
"""

from __future__ import annotations

import argparse
import statistics

import msgspec
import numpy as np

from common.config import Scheduler as Settings
from common.cost_models import COST_MODELS, CostModel
from scheduler.simulate.cluster import Cluster, Sizes
from scheduler.simulate.workload import Workload
from tests.bench.closed_loop import START_SECONDS, Loop, closed_loop
from tests.bench.throughput import options, print_table
from tests.integration.group import Group, running

FRAMES = 170  # of every stream: 8 seconds and a half
PROMPT_TOKENS = 40
SIMULATED_REQUESTS_PER_CLIENT = 30


def listen(group: Group, clients: int, seconds: int) -> Loop:
    """So many clients, each of which sends its next request when it has heard the last."""

    def fields(client: int, turn: int) -> dict[str, object]:
        return {"text": f"Client {client}, request {turn}.", "format": "wav", "seed": 1000 * client + turn}

    return closed_loop(group.base, clients, seconds, fields, lambda: None)


def simulate(model: CostModel, clients: int) -> Loop:
    """The same in the simulator."""
    n = clients * SIMULATED_REQUESTS_PER_CLIENT
    workload = Workload(
        rate=1.0,
        arrivals=np.zeros(n),
        own_tokens=np.full(n, PROMPT_TOKENS),
        voices=np.full(n, -1),
        voice_tokens=np.zeros(0),
        frames=np.full(n, FRAMES),
        max_frames=np.full(n, FRAMES),
        streaming=np.ones(n, bool),
    )
    alone = msgspec.structs.replace(model, ar_contention=1.0, vocoder_contention=1.0)
    cluster = Cluster(Settings(), alone, Sizes(128, 16_384, 16), workload, n // 4, clients, START_SECONDS)
    cluster.run()
    begin, end = cluster.begin, cluster.end
    assert begin is not None, "the first measured request has arrived"
    assert end is not None, "the last request has arrived"
    first = statistics.median(one.first_audio - one.arrived for one in cluster.listeners[n // 4 :])
    return Loop((end.frames - begin.frames) / (end.now - begin.now), first, stolen=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=sorted(COST_MODELS), default="h200-s21-fp8")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 16, 32, 64])
    parser.add_argument("--seconds", type=int, default=20, help="for each number of clients")
    arguments = parser.parse_args()
    with running(*options(arguments.preset, frames=FRAMES)) as group:
        loads = [listen(group, clients, arguments.seconds) for clients in arguments.clients]
    columns = ("clients", "frames/s", "x of first", "of simulated", "first sound ms", "simulated ms", "stolen")
    rows = []
    for clients, load in zip(arguments.clients, loads, strict=True):
        simulated = simulate(COST_MODELS[arguments.preset], clients)
        cells = (
            f"{clients}",
            f"{load.frames_per_second:.0f}",
            f"{load.frames_per_second / loads[0].frames_per_second:.1f}",
            f"{load.frames_per_second / simulated.frames_per_second:.1%}",
            f"{1000 * load.first_sound:.1f}",
            f"{1000 * simulated.first_sound:.1f}",
            f"{load.stolen:.1%}",
        )
        rows.append(cells)
    print_table(columns, rows)


if __name__ == "__main__":
    main()
