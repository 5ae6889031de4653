"""How near the real processes come to what a cost model allows.

    python -m tests.bench.throughput --streams 8 16 64               # buffered streams, with look-ahead
    python -m tests.bench.throughput --streams 64 --sync             # the synchronous twin: what a step costs beside

Workers are cost-model executors (they sleep), everything else is real: gateway, scheduler, transport. Ideal is the time
of the AR worker's steps alone, one after another without a gap. ``tests.bench.sweep`` is about concurrency.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from common.cost_models import COST_MODELS, CostModel
from tests.integration.client import Reply, post
from tests.integration.group import Group, running

FRAMES = 600  # what the shortest text may become, at 20 frames/s


class Run(NamedTuple):
    """``streams`` at once, each of FRAMES frames."""

    streams: int
    seconds: float
    device_seconds: float  # of the AR worker's steps
    steps: float

    @property
    def frames_per_second(self) -> float:
        return self.streams * FRAMES / self.seconds


def ideal_seconds(model: CostModel, streams: int) -> float:
    """FRAMES steps of all streams, without a gap."""
    return FRAMES * model.step_seconds(streams, 0)


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


def run(group: Group, streams: int) -> Run:
    """Start all streams at once, buffered, and wait for the last."""

    async def speak(number: int) -> Reply:
        fields = {"text": f"Stream {number}.", "seed": number, "format": "wav", "streaming": False}
        return await post(group.base, "/v1/tts", fields | {"max_new_tokens": FRAMES})

    async def all_of_them() -> list[Reply]:
        return list(await asyncio.gather(*(speak(number) for number in range(streams))))

    before = group.metric("shoal_step_seconds_sum"), group.metric("shoal_step_seconds_count")
    began = time.monotonic()
    replies = asyncio.run(all_of_them())
    seconds = time.monotonic() - began
    assert all(reply.status == 200 for reply in replies), [reply.status for reply in replies]
    spent = group.metric("shoal_step_seconds_sum") - before[0]
    steps = group.metric("shoal_step_seconds_count") - before[1]
    return Run(streams, seconds, spent, steps)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("  ".join(columns))
    for row in rows:
        print("  ".join(cell.rjust(len(column)) for cell, column in zip(row, columns, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=sorted(COST_MODELS), default="h200-bf16")
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 16, 64])
    parser.add_argument("--sync", action="store_true", help="without look-ahead")
    arguments = parser.parse_args()
    model = COST_MODELS[arguments.preset]
    with running(*options(arguments.preset, arguments.sync)) as group:
        run(group, 4)  # warm up
        runs = [run(group, count) for count in arguments.streams]
    columns = ("streams", "frames/s", "of ideal", "ms/step beside device")
    rows = []
    for one in runs:
        share = ideal_seconds(model, one.streams) / one.seconds
        beside = 1000 * (one.seconds - one.device_seconds) / one.steps
        cells = (
            f"{one.streams}",
            f"{one.frames_per_second:.0f}",
            f"{share:.1%}",
            f"{beside:.3f}",
        )
        rows.append(cells)
    print_table(columns, rows)


if __name__ == "__main__":
    main()
