"""``shoal top``: live table of a server's state."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deploy.cli.metrics_readings import Distribution, Readings, distribution, rate
from deploy.cli.server import Server, ServerError, server_options

WINDOW_SECONDS = 60.0
COUNT = 1.0  # the unit of whole things
DISTRIBUTIONS = {  # heading: (histogram, what one unit is, digits)
    "time to first audio, ms": ("shoal_time_to_first_audio_seconds", 1000.0, 0),
    "wait in the queue, ms": ("shoal_request_queue_time_seconds", 1000.0, 0),
    "gap between chunks, ms": ("shoal_audio_chunk_gap_seconds", 1000.0, 0),
    "chunk too late by, ms": ("shoal_audio_chunk_lateness_seconds", 1000.0, 0),
    "underrun of a stream, ms": ("shoal_audio_underrun_seconds", 1000.0, 0),
    "AR step, ms": ("shoal_step_seconds", 1000.0, 1),
    "sequences in a step": ("shoal_step_batch_size", COUNT, 0),
    "vocoder call, ms": ("shoal_vocoder_call_seconds", 1000.0, 1),
    "streams in a call": ("shoal_vocoder_batch_size", COUNT, 0),
}
EPILOG = """\b
Examples:
  shoal top                                     until Ctrl-C
  shoal top --once                              one look, to read or to keep
  shoal top --server http://10.0.0.7:8080 --interval 5

\b
Reading it: "running" streams have an AR slot, "waiting" ones are in the queue. A chunk that
is too late has let its listener run dry; in good order that row and the underruns are 0.
"""


@click.command(epilog=EPILOG, short_help="Watch what a server is doing.")
@click.option(
    "--once",
    is_flag=True,
    help="Print one table (with percentiles since the start) and end; the default when the output is no terminal.",
)
@click.option("--interval", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Seconds.")
@server_options
def top(once: bool, interval: float, address: str, api_key: str) -> None:
    """Show streams, queue, batches, gaps and times to first audio of a running server."""
    server, console = Server(address, api_key), Console()
    once = once or not console.is_terminal
    asyncio.run(_once(server, console, interval) if once else _live(server, console, interval))


async def _once(server: Server, console: Console, interval: float) -> None:
    before = await _read(server)
    await asyncio.sleep(interval)
    console.print(render(server.address, await _read(server), before, None, "since the start"))


async def _live(server: Server, console: Console, interval: float) -> None:
    """Wait for a server that stops answering; raise for one that never answered."""
    history = deque([await _read(server)])
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(interval)
            try:
                now = await _read(server)
            except ServerError as error:
                live.update(Text(f"{server.address}: {error.message}", style="red"), refresh=True)
                continue
            while len(history) > 1 and history[0].taken < now.taken - WINDOW_SECONDS:
                history.popleft()
            span = f"last {now.taken - history[0].taken:.0f} s"
            live.update(render(server.address, now, history[-1], history[0], span), refresh=True)
            history.append(now)


async def _read(server: Server) -> Readings:
    async with server.request("GET", "/metrics") as reply:
        return Readings(await reply.text(), time.monotonic())


def render(address: str, now: Readings, before: Readings, window: Readings | None, span: str) -> Group:
    """Render the table: rates between ``before`` and ``now``, percentiles since ``window`` (None: since the start)."""
    return Group(_heading(address, now), _numbers(now, before), _percentiles(now, window, span))


def _heading(address: str, now: Readings) -> Text:
    text = Text.assemble((address, "bold"), "  ")
    for process, up in sorted(now.by("shoal_up", "process").items()):
        text.append("● " if up else "○ ", style="green" if up else "red")
        text.append(f"{process}  ")
    return text


def _numbers(now: Readings, before: Readings) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left", "right"):
        table.add_column(justify=justify)
    left, right = _streams(now, before), _workers(now, before)
    for (name, value), (other, other_value) in zip(left, right, strict=True):
        table.add_row(name, Text(value, style="bold"), other, Text(other_value, style="bold"))
    return table


def _streams(now: Readings, before: Readings) -> list[tuple[str, str]]:
    outcomes = now.by("shoal_requests_total", "outcome")
    good = sum(outcomes.get(reason, 0.0) for reason in ("stop", "length"))
    return [
        ("streams running", f"{now.total('shoal_num_requests_running'):.0f}"),
        ("streams waiting", f"{now.total('shoal_num_requests_waiting'):.0f}"),
        ("ended per second", f"{rate(now, before, 'shoal_requests_total'):.1f}"),
        ("sound, s per second", f"{rate(now, before, 'shoal_audio_seconds_total'):.1f}"),
        ("ended well / otherwise", f"{good:.0f} / {sum(outcomes.values()) - good:.0f}"),
        ("clients that left", f"{now.total('shoal_client_disconnects_total'):.0f}"),
    ]


def _workers(now: Readings, before: Readings) -> list[tuple[str, str]]:
    pages = now.by("shoal_kv_pages", "state")
    queries = now.total("shoal_prefix_cache_queries_total")
    hits = now.total("shoal_prefix_cache_hits_total") / queries if queries else 0.0
    return [
        ("frames drawn per second", f"{rate(now, before, 'shoal_generation_frames_total'):.0f}"),
        ("frames to sound per second", f"{rate(now, before, 'shoal_vocoder_frames_total'):.0f}"),
        ("AR worker at work", f"{rate(now, before, 'shoal_step_seconds_sum'):.0%}"),
        ("vocoder at work", f"{rate(now, before, 'shoal_vocoder_call_seconds_sum'):.0%}"),
        ("KV pages active / all", f"{pages.get('active', 0):.0f} / {sum(pages.values()):.0f}"),
        ("prompt found in the cache", f"{hits:.0%}"),
    ]


def _percentiles(now: Readings, window: Readings | None, span: str) -> Table:
    table = Table(box=None, title=span, title_justify="left", title_style="dim", padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("p50", "p95", "p99", "values"):
        table.add_column(heading, justify="right")
    for heading, (name, unit, digits) in DISTRIBUTIONS.items():
        table.add_row(heading, *_cells(distribution(now, window, name), unit, digits))
    return table


def _cells(values: Distribution, unit: float, digits: int) -> list[str]:
    """Round the percentile of a histogram of whole numbers up."""
    scaled = [value * unit if unit != COUNT or math.isnan(value) else math.ceil(value) for value in values[1:]]
    shown = ["-" if math.isnan(value) else f"{value:.{digits}f}" for value in scaled]
    return [*shown, f"{values.values:.0f}"]
