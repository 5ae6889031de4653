"""What ``/metrics`` says: sums over labels and processes, and percentiles of what was added between two readings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class Readings:
    """One answer of ``/metrics``, ``taken`` at a time in seconds of any clock."""

    def __init__(self, text: str, taken: float) -> None:
        self.taken = taken
        self._samples: dict[str, list[Sample]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append(sample)

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name that carry these labels; 0 when there is none."""
        return sum(sample.value for sample in self._of(name) if labels.items() <= sample.labels.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sums by the value of a label."""
        sums: dict[str, float] = {}
        for sample in self._of(name):
            value = sample.labels.get(label, "")
            sums[value] = sums.get(value, 0.0) + sample.value
        return sums

    def buckets(self, name: str) -> dict[float, float]:
        """Of a histogram: upper bound to how many values lie at or below it."""
        return {float(bound): count for bound, count in self.by(f"{name}_bucket", "le").items()}

    def _of(self, name: str) -> Iterable[Sample]:
        return self._samples.get(name, ())


class Distribution(NamedTuple):
    """Percentiles of so many ``values`` that a histogram took in; NaN when there was none."""

    values: float
    p50: float
    p95: float
    p99: float


def rate(now: Readings, before: Readings, name: str, **labels: str) -> float:
    """How much a counter grows per second. A counter that went back belongs to a process that was started again."""
    seconds = now.taken - before.taken
    return max(0.0, now.total(name, **labels) - before.total(name, **labels)) / seconds if seconds > 0 else 0.0


def distribution(now: Readings, before: Readings | None, name: str) -> Distribution:
    """Of the values that came between two readings; ``before`` None: of all."""
    earlier = {} if before is None else before.buckets(name)
    counts = {bound: max(0.0, count - earlier.get(bound, 0.0)) for bound, count in now.buckets(name).items()}
    count = counts.get(math.inf, 0.0)
    return Distribution(count, *(_quantile(counts, share) for share in (0.5, 0.95, 0.99)))


def _quantile(counts: dict[float, float], share: float) -> float:
    """Linear within the bucket, as Prometheus' histogram_quantile; above the last finite bound, that bound."""
    wanted = share * counts.get(math.inf, 0.0)
    if not wanted:
        return math.nan
    below, bound_below = 0.0, 0.0
    for bound in sorted(counts):
        if counts[bound] >= wanted:
            if math.isinf(bound):
                return bound_below
            inside = counts[bound] - below
            return bound_below + (bound - bound_below) * (wanted - below) / inside if inside else bound
        below, bound_below = counts[bound], bound
    return bound_below
