"""The search for the largest rate that a policy sustains."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from scheduler.simulate.measure import Summary

LOWEST = 0.01  # requests per second; below it a policy sustains nothing
HIGHEST = 10_000.0
RESOLUTION = 0.025  # of the rate, where the search stops
MOST_REFUSED = 0.01  # share of the requests
MOST_DRAINED = 0.01  # of what listeners play may come from their reserves


class Slo(NamedTuple):
    """What every listener may expect: ``ttfa`` in seconds for 99 of 100, and the share of streams with an underrun."""

    ttfa: float
    underruns: float


class Found(NamedTuple):
    """``rate`` and ``summary``: the largest that holds, or None. ``missed``: what the next higher rate did not hold."""

    rate: float | None
    summary: Summary | None
    missed: list[str]


def missed(summary: Summary, slo: Slo) -> list[str]:
    """What a run did not hold. NaN, where nothing was measured, holds nothing."""
    checks = {
        "ttfa": summary.ttfa.p99 <= slo.ttfa,
        "underruns": summary.underrun_share <= slo.underruns,
        "refused": summary.refused_share <= MOST_REFUSED,
        "drained": summary.drained <= MOST_DRAINED,
    }
    return [name for name, holds in checks.items() if not holds]


def largest_rate(run: Callable[[float], Summary], slo: Slo, start: float) -> Found:
    """Double or halve from ``start`` until the limit is between two rates, then bisect."""
    best: tuple[float, Summary] | None = None
    rate, above, reasons = start, None, ["no rate was too high"]
    while LOWEST <= rate <= HIGHEST:
        summary = run(rate)
        misses = missed(summary, slo)
        if misses:
            above, reasons = rate, misses
        else:
            best = rate, summary
        if best is None:
            rate /= 2
        elif above is None:
            rate *= 2
        elif above - best[0] <= RESOLUTION * best[0]:
            break
        else:
            rate = (best[0] + above) / 2
    return Found(best[0] if best else None, best[1] if best else None, reasons)
