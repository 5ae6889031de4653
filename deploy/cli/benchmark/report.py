"""Reports: a table, JSON and a chart."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
from msgspec import Struct
from rich.table import Table

from deploy.cli.benchmark.listener import UNDERRUN_SECONDS, Heard
from deploy.cli.benchmark.load import Load, Outcome

LAG_LIMIT = 0.02  # seconds; a client less punctual than this measures itself
MOST_ERRORS = 10


class Percentiles(Struct, frozen=True):
    """Percentiles in the unit of the values; 0 without values."""

    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class Summary(Struct, frozen=True):
    """Summary of a load. Times are in seconds, of complete streams only; :class:`Heard` defines them."""

    load: str
    requests: int
    whole: int
    refused: int
    failed: int
    errors: dict[str, int]
    repeated_prompts: bool
    wall: float
    audio_seconds: float
    audio_per_second: float
    whole_per_second: float
    underrun_share: float
    first_byte: Percentiles
    first_audio: Percentiles
    first_playable: Percentiles
    gap: Percentiles
    underrun: Percentiles
    real_time_factor: Percentiles
    total: Percentiles
    client_lag: Percentiles


class Result(Struct, frozen=True):
    """A summary with its complete streams, for the chart."""

    summary: Summary
    heard: list[Heard]


def summarise(load: Load, outcome: Outcome, repeated: bool) -> Result:
    whole = [heard for heard in outcome.heard if not heard.error]
    errors = Counter(heard.error for heard in outcome.heard if heard.error)
    refused = sum(heard.refused for heard in outcome.heard)
    audio = sum(heard.audio_seconds for heard in whole)
    summary = Summary(
        load=load.name,
        requests=len(outcome.heard),
        whole=len(whole),
        refused=refused,
        failed=len(outcome.heard) - len(whole) - refused,
        errors=dict(errors.most_common(MOST_ERRORS)),
        repeated_prompts=repeated,
        wall=outcome.wall,
        audio_seconds=audio,
        audio_per_second=audio / outcome.wall,
        whole_per_second=len(whole) / outcome.wall,
        underrun_share=sum(heard.underrun > UNDERRUN_SECONDS for heard in whole) / max(1, len(whole)),
        first_byte=_percentiles([heard.first_byte for heard in whole]),
        first_audio=_percentiles([heard.first_audio for heard in whole]),
        first_playable=_percentiles([heard.first_playable for heard in whole]),
        gap=_percentiles([gap for heard in whole for gap in heard.gaps]),
        underrun=_percentiles([heard.underrun for heard in whole]),
        real_time_factor=_percentiles([heard.real_time_factor for heard in whole]),
        total=_percentiles([heard.total for heard in whole]),
        client_lag=_percentiles(outcome.lag),
    )
    return Result(summary, whole)


def _percentiles(values: list[float]) -> Percentiles:
    return Percentiles(*map(float, np.percentile(values, (50, 95, 99, 100)))) if values else Percentiles()


def table(summaries: list[Summary]) -> Table:
    """Build a table with one column per load; times as p50 / p95 / p99."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), caption="a / b / c: p50 / p95 / p99", caption_justify="left")
    drawn.add_column("")
    for summary in summaries:
        drawn.add_column(summary.load, justify="right")
    for name, *cells in zip(*(_cells(summary) for summary in summaries), strict=True):
        drawn.add_row(name[0], *(cell[1] for cell in (name, *cells)))
    return drawn


def _cells(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("whole streams", f"{summary.whole}"),
        ("refused / failed", f"{summary.refused} / {summary.failed}"),
        ("first byte, ms", _row(summary.first_byte, 1000)),
        ("first audio, ms", _row(summary.first_audio, 1000)),
        ("first playable, ms", _row(summary.first_playable, 1000)),
        ("gap, ms", _row(summary.gap, 1000)),
        ("underrun, ms", _row(summary.underrun, 1000)),
        ("streams with underrun", f"{summary.underrun_share:.1%}"),
        ("real-time factor", _row(summary.real_time_factor, 1, 3)),
        ("whole request, s", _row(summary.total, 1, 2)),
        ("streams per second", f"{summary.whole_per_second:.2f}"),
        ("sound, s per second", f"{summary.audio_per_second:.2f}"),
    ]


def _row(values: Percentiles, unit: float, digits: int = 0) -> str:
    return " / ".join(f"{value * unit:.{digits}f}" for value in (values.p50, values.p95, values.p99))


def verdict(summaries: list[Summary]) -> str:
    """Sum up the loads in a sentence: complete streams, and the largest load that no listener noticed."""
    requests, whole = sum(summary.requests for summary in summaries), sum(summary.whole for summary in summaries)
    if not whole:
        return f"none of {requests} requests got a complete stream"
    smooth = [summary for summary in summaries if summary.whole == summary.requests and not summary.underrun_share]
    end = f"no failure and no underrun with {smooth[-1].load}" if smooth else "every load had failures or underruns"
    return f"{whole} of {requests} streams were complete; {end}"


def warnings(summaries: list[Summary]) -> list[str]:
    """Return caveats about the measurement."""
    found = [
        f"{summary.load}: {error} ({count} requests)"
        for summary in summaries
        for error, count in summary.errors.items()
    ]
    for summary in summaries:
        if summary.client_lag.p99 > LAG_LIMIT:
            late = summary.client_lag.p99 * 1000
            found.append(f"{summary.load}: this client itself was late by {late:.0f} ms (p99); its machine is too busy")
    return found


def write_json(results: list[Result], about: dict[str, Any], path: Path) -> None:
    content = about | {"results": [result.summary for result in results]}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def load_pyplot() -> Any:
    """Raises UsageError: matplotlib is not installed."""
    try:
        importlib.import_module("matplotlib").use("agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise click.UsageError("--plot needs matplotlib: pip install matplotlib") from None


def plot(results: list[Result], title: str, path: Path) -> None:
    """Draw two charts: distribution of time to first audio, and audio throughput with underruns by load."""
    pyplot = load_pyplot()
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    figure.suptitle(title)
    for result in results:
        values = np.sort([heard.first_audio * 1000 for heard in result.heard])
        shares = np.linspace(0, 1, len(values) + 1)
        left.step([*values[:1], *values], shares, where="post", label=result.summary.load)
    left.set(xlabel="first audio, ms", ylabel="share of streams", ylim=(0, 1.02))
    left.legend(loc="lower right")
    summaries = [result.summary for result in results]
    loads, speeds = zip(*((summary.load, summary.audio_per_second) for summary in summaries), strict=True)
    bars = right.bar(loads, speeds, width=0.5)
    right.bar_label(bars, [f"{summary.underrun_share:.0%} underrun" for summary in summaries], padding=2)
    right.set(ylabel="seconds of sound per second", xlim=(-0.75, len(loads) - 0.25))
    right.margins(y=0.1)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
