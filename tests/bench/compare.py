"""``python -m tests.bench.compare``: measures two servers alternately on the same work and prints ratios.

Each round sends the same texts to the first server, then to the second, in closed loops of 1, 8 and 16 clients. While
a load runs, the health endpoint of its server is probed twice a second. With ``--pid`` and ``--other-pid`` (the
process that started each server) the processor time of the server is counted too.

Needs the packages of ``requirements-test.lock`` (``deploy/test.sh`` installs them).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import click
import psutil
from rich.console import Console
from rich.table import Table

from deploy.cli.benchmark.dialects import DIALECTS
from deploy.cli.benchmark.listener import Heard
from deploy.cli.benchmark.load import Load, Speaker, put
from deploy.cli.benchmark.prompts import Prompts, made_up
from deploy.cli.benchmark.report import load_pyplot
from deploy.cli.server import Server

HEALTH_SECONDS = 0.5  # between probes


class Side(NamedTuple):
    """One of the two servers. ``pid``: root of its processes; None: processor time is not counted."""

    name: str
    server: Server
    api: str
    health: str
    pid: int | None
    fields: dict[str, Any]


class Measured(NamedTuple):
    """One load on one server. Times in seconds; NaN where nothing was measured."""

    audio_per_second: float
    first_audio: float  # p50
    cpu_per_audio: float
    health: float  # longest answer
    failed: int


def processor_seconds(pid: int | None) -> float:
    """Processor time of a process and all its descendants so far; NaN without a pid."""
    if pid is None:
        return float("nan")
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


async def watch_health(session: aiohttp.ClientSession, url: str, answers: list[float]) -> None:
    """Append the time of each answer; runs until cancelled."""
    while True:
        start = time.perf_counter()
        try:
            async with session.get(url) as reply:
                await reply.read()
        finally:
            answers.append(time.perf_counter() - start)
        await asyncio.sleep(HEALTH_SECONDS)


async def measure(side: Side, clients: int, texts: list[str]) -> Measured:
    """Run one load to its end."""
    answers: list[float] = []
    prompts = Prompts(iter(texts), lambda: None)
    async with side.server.session() as session:
        more = {"voice": None, "model": "tts-1", "more": side.fields, "time_limit": 600.0}
        speak = Speaker(side.server, session, DIALECTS[side.api], "wav", None, **more)
        probe = asyncio.create_task(watch_health(session, side.server.address + side.health, answers))
        before = processor_seconds(side.pid)
        outcome = await put(Load(clients, None, len(texts), None), speak, prompts, 0, lambda _: None)
        used = processor_seconds(side.pid) - before
        probe.cancel()
    return summary(outcome.heard, outcome.wall, used, answers)


def summary(heard: list[Heard], wall: float, used: float, answers: list[float]) -> Measured:
    """Summarize the replies of one load."""
    complete = [one for one in heard if not one.error]
    audio = sum(one.audio_seconds for one in complete)
    first = statistics.median([one.first_audio for one in complete]) if complete else float("nan")
    per_audio = used / audio if audio else float("nan")
    return Measured(audio / wall, first, per_audio, max(answers, default=float("nan")), len(heard) - len(complete))


def medians(rounds: list[Measured]) -> Measured:
    """The median of each figure over rounds; failures are summed."""
    columns = list(zip(*rounds, strict=True))
    middle = [statistics.median(column) for column in columns[:-1]]
    return Measured(*middle, failed=sum(columns[-1]))


def rows(first: Measured, second: Measured) -> Iterator[tuple[str, float, float, float]]:
    """Name, both values and their ratio (first by second) for each figure."""
    names = ("audio s/s", "first audio p50, s", "CPU s per audio s", "health, longest, s")
    for name, a, b in zip(names, first[:-1], second[:-1], strict=True):
        yield name, a, b, a / b if b else float("nan")


async def compare(
    sides: tuple[Side, Side], clients: list[int], requests: int, rounds: int
) -> dict[int, list[Measured]]:
    """Medians of both servers for each number of clients."""
    found: dict[int, list[Measured]] = {}
    for count in clients:
        texts = made_up("medium", count)
        taken: tuple[list[Measured], list[Measured]] = ([], [])
        for _ in range(rounds):
            batch = [next(texts) for _ in range(requests * count)]
            for side, values in zip(sides, taken, strict=True):
                values.append(await measure(side, count, batch))
        found[count] = [medians(values) for values in taken]
    return found


def table(sides: tuple[Side, Side], found: dict[int, list[Measured]]) -> Table:
    drawn = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("clients", "", sides[0].name, sides[1].name, "ratio"):
        drawn.add_column(heading, justify="left" if not heading else "right")
    for count, (first, second) in found.items():
        for name, a, b, ratio in rows(first, second):
            drawn.add_row(str(count), name, f"{a:.3g}", f"{b:.3g}", f"{ratio:.3g}")
        drawn.add_row(str(count), "failed", str(first.failed), str(second.failed), "")
    return drawn


def plot(sides: tuple[Side, Side], found: dict[int, list[Measured]], path: Path) -> None:
    """Draw throughput and time to first audio by the number of clients."""
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    labels = [str(count) for count in found]
    for axis, field, title in zip(axes, (0, 1), ("audio seconds per second", "first audio p50, seconds"), strict=True):
        for index, side in enumerate(sides):
            places = [position + (index - 0.5) * 0.38 for position in range(len(labels))]
            bars = axis.bar(places, [values[index][field] for values in found.values()], 0.36, label=side.name)
            axis.bar_label(bars, fmt="%.2g", padding=2)
        axis.set(title=title, xlabel="clients", xticks=range(len(labels)), xticklabels=labels)
        axis.margins(y=0.12)
    axes[1].set_yscale("log")
    axes[0].legend()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


@click.command(help=(__doc__ or "").partition("\n\n")[2])
@click.option("--server", default="http://127.0.0.1:8080", show_default=True, help="The first server.")
@click.option("--other", required=True, help="The second server.")
@click.option("--name", default="Shoal", show_default=True)
@click.option("--other-name", default="other", show_default=True)
@click.option("--api", type=click.Choice(list(DIALECTS)), default="fish", show_default=True, help="Of the first.")
@click.option("--other-api", type=click.Choice(list(DIALECTS)), default="fish", show_default=True)
@click.option("--health", default="/v1/health", show_default=True, help="Path of both health endpoints.")
@click.option("--pid", type=int, help="Process that started the first server.")
@click.option("--other-pid", type=int)
@click.option("--clients", type=int, multiple=True, default=(1, 8, 16), show_default=True)
@click.option("--requests", default=2, show_default=True, help="Per client and round.")
@click.option("--rounds", default=3, show_default=True)
@click.option(
    "--max-new-tokens", default=112, show_default=True, help="Fixes the length of a reply: 5.6 s at 20 frames/s."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
@click.option("--plot", "plot_file", type=click.Path(path_type=Path))
def main(**options: Any) -> None:
    fields = {"max_new_tokens": options["max_new_tokens"]}
    sides = tuple(
        Side(
            options[f"{prefix}name"],
            Server(options["other" if prefix else "server"], ""),
            options[f"{prefix}api"],
            options["health"],
            options[f"{prefix}pid"],
            fields,
        )
        for prefix in ("", "other_")
    )
    assert len(sides) == 2
    found = asyncio.run(compare(sides, list(options["clients"]), options["requests"], options["rounds"]))
    Console().print(table(sides, found))
    if options["json_file"]:
        content = {count: [values._asdict() for values in both] for count, both in found.items()}
        options["json_file"].write_text(json.dumps(content, indent=2) + "\n")
    if options["plot_file"]:
        plot(sides, found, options["plot_file"])


if __name__ == "__main__":
    main()
