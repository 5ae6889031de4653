"""Reports of the simulator: a table, JSON and a chart."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from scheduler.simulate.measure import Percentiles, Summary


class Result(Struct, frozen=True):
    """Result of a run. ``load``: requests per second, or the clients of a closed loop.

    ``missed``: of a search for the largest rate, what the next higher one did not hold.
    """

    policy: str
    load: float
    summary: Summary
    missed: list[str] = []


class PlotError(Exception):
    """matplotlib is not installed."""


_HEADINGS = [
    ("policy", 9),
    ("load", 7),
    ("n", 6),
    ("TTFA ms 50/95/99", 17),
    ("wait ms 50/95/99", 17),
    ("late ms 95/99", 14),
    ("underruns", 10),
    ("refused", 8),
    ("good/s", 7),
    ("audio s/s", 10),
    ("AR", 5),
    ("voc", 5),
    ("batch", 6),
    ("call", 6),
    ("drained", 8),
]


def heading() -> str:
    """Return the heading of :func:`line`; underruns: share of streams with one, and seconds in all."""
    return "".join(name.rjust(width) for name, width in _HEADINGS)


def line(result: Result) -> str:
    """Format a result as one line."""
    summary = result.summary
    cells = [
        result.policy,
        f"{result.load:.4g}",
        str(summary.requests),
        _milliseconds(summary.ttfa),
        _milliseconds(summary.queue_wait),
        f"{summary.lateness.p95 * 1000:.0f}/{summary.lateness.p99 * 1000:.0f}",
        f"{summary.underrun_share:.1%} {summary.underrun_seconds:.3g}s",
        f"{summary.refused_share:.1%}",
        f"{summary.goodput:.2f}",
        f"{summary.throughput:.1f}",
        f"{summary.ar_busy:.2f}",
        f"{summary.vocoder_busy:.2f}",
        f"{summary.mean_batch:.1f}",
        f"{summary.mean_call:.1f}",
        f"{summary.drained:.1%}",
    ]
    widths = (width for _, width in _HEADINGS)
    return "".join(" " + cell.rjust(width - 1) for cell, width in zip(cells, widths, strict=True))


def _milliseconds(values: Percentiles) -> str:
    return "/".join(f"{seconds * 1000:.0f}" for seconds in (values.p50, values.p95, values.p99))


def write_json(results: list[Result], file: Path) -> None:
    """Return all figures; unmeasured ones are null."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


def load_pyplot() -> Any:
    """Import matplotlib's pyplot.

    Raises:
        PlotError: it is not installed.
    """
    try:
        importlib.import_module("matplotlib").use("Agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise PlotError("--plot needs matplotlib: pip install matplotlib") from None


def plot(results: list[Result], load: str, file: Path) -> None:
    """Draw time to first audio, underruns and throughput over the load, one line per policy. ``load``: axis label.

    Raises:
        PlotError: matplotlib is not installed.
    """
    figure, axes = load_pyplot().subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for policy in dict.fromkeys(result.policy for result in results):
        own = sorted((result for result in results if result.policy == policy), key=lambda result: result.load)
        loads, summaries = [result.load for result in own], [result.summary for result in own]
        line = axes[0].plot(loads, [1000 * item.ttfa.p99 for item in summaries], "o-", label=f"{policy}, p99")[0]
        axes[0].plot(
            loads, [1000 * item.ttfa.p50 for item in summaries], "o--", color=line.get_color(), label=f"{policy}, p50"
        )
        axes[1].plot(loads, [100 * item.underrun_share for item in summaries], "o-", label=policy)
        axes[2].plot(loads, [item.throughput for item in summaries], "o-", label=policy)
    names = ["time to first audio (ms)", "streams with an underrun (%)", "audio (s/s)"]
    for axis, name in zip(axes, names, strict=True):
        axis.set(xlabel=load, ylabel=name)
        axis.grid(alpha=0.3)
        axis.legend()
    axes[0].set_yscale("log")
    figure.savefig(file, dpi=120)
