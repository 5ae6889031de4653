"""How near the real processes come to what a cost model allows.

    python -m tests.bench.throughput --streams 8 16 64               # buffered streams, with look-ahead
    python -m tests.bench.throughput --streams 64 --sync             # the synchronous twin: what a step costs beside

Workers are cost-model executors (they sleep), everything else is real: gateway, scheduler, transport. So many clients
ask for one file after another. Ideal is that each has a frame in every step of the AR worker, and one step follows
another without a gap. ``tests.bench.sweep`` is about concurrency.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

from common.cost_models import COST_MODELS
from tests.bench.closed_loop import closed_loop
from tests.bench.round_trip import bare_round_trip
from tests.integration.group import Group, running

FRAMES = 600  # what the shortest text may become, at 20 frames/s


class Run(NamedTuple):
    """``streams`` at a time, of FRAMES frames each, over ``seconds``."""

    streams: int
    seconds: float
    frames: float  # drawn by the AR worker
    steps: float
    step_seconds: float  # that its device was at work


def options(preset: str, sync: bool = False, frames: int = 0) -> list[str]:
    """Options of a group of cost-model executors. ``frames``: length of every sequence, 0: endless."""
    settings = {
        "ar_worker.executor": "cost",
        "vocoder_worker.executor": "cost",
        "ar_worker.cost.preset": preset,
        "vocoder_worker.cost.preset": preset,
        "ar_worker.cost.frames": frames,
        "ar_worker.slots": 128,
        "vocoder_worker.slots": 256,
        "ar_worker.pages": 16384,
        "scheduler.look_ahead": str(not sync).lower(),
    }
    return [option for key, value in settings.items() for option in ("--set", f"{key}={value}")]


COUNTED = ("shoal_generation_frames_total", "shoal_step_seconds_count", "shoal_step_seconds_sum")


def run(group: Group, streams: int, seconds: int) -> Run:
    """Buffered streams, as many at any time, counted over ``seconds`` in the middle."""
    counts: list[list[float]] = []

    def count() -> None:
        samples = group.metrics()
        totals = [sum(value for key, value in samples.items() if key.split("{")[0] == name) for name in COUNTED]
        counts.append([time.monotonic(), *totals])

    def fields(client: int, turn: int) -> dict[str, object]:
        seed, frames = 1000 * client + turn, FRAMES * (client + 1) // streams if turn == 0 else FRAMES
        body = {"text": f"Stream {client}.", "seed": seed, "format": "wav", "streaming": False}
        return body | {"max_new_tokens": max(frames, 1)}

    closed_loop(group.base, streams, seconds, fields, count)
    before, after = counts
    passed, frames, steps, spent = (end - begin for begin, end in zip(before, after, strict=True))
    return Run(streams, passed, frames, steps, spent)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("  ".join(columns))
    for row in rows:
        print("  ".join(cell.rjust(len(column)) for cell, column in zip(row, columns, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=sorted(COST_MODELS), default="h200-bf16")
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--seconds", type=int, default=10, help="for each number of streams")
    parser.add_argument("--sync", action="store_true", help="without look-ahead")
    arguments = parser.parse_args()
    model = COST_MODELS[arguments.preset]
    with running(*options(arguments.preset, arguments.sync)) as group:
        runs = [run(group, count, arguments.seconds) for count in arguments.streams]
        bare = bare_round_trip()  # on a machine that is as busy as during the runs
    columns = ("streams", "frames/s", "of ideal", "frames/step", "ms/step beside device", "in bare round trips")
    rows = []
    for one in runs:
        beside = (one.seconds - one.step_seconds) / one.steps
        ideal = one.streams / model.step_seconds(one.streams, 0)
        cells = (
            f"{one.streams}",
            f"{one.frames / one.seconds:.0f}",
            f"{one.frames / one.seconds / ideal:.1%}",
            f"{one.frames / one.steps:.1f}",
            f"{1000 * beside:.3f}",
            f"{beside / bare:.1f}",
        )
        rows.append(cells)
    print_table(columns, rows)


if __name__ == "__main__":
    main()
