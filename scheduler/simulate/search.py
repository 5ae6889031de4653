"""Search for the largest rate that a policy sustains."""

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
    """Service-level objective: p99 of ``ttfa`` in seconds, and the share of streams with an underrun."""

    ttfa: float
    underruns: float


class Found(NamedTuple):
    """Search result. ``rate``, ``summary``: the largest that holds, or None. ``missed``: what fails at the next."""

    rate: float | None
    summary: Summary | None
    missed: list[str]


def missed(summary: Summary, slo: Slo) -> list[str]:
    """Return the objectives that a run misses. NaN (unmeasured) misses."""
    checks = {
        "ttfa": summary.ttfa.p99 <= slo.ttfa,
        "underruns": summary.underrun_share <= slo.underruns,
        "refused": summary.refused_share <= MOST_REFUSED,
        "drained": summary.drained <= MOST_DRAINED,
    }
    return [name for name, holds in checks.items() if not holds]


def largest_rate(run: Callable[[float], Summary], slo: Slo, start: float) -> Found:
    """Bracket the limit by doubling or halving from ``start``, then bisect."""
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
