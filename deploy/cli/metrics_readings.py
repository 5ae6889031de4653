"""Readings of ``/metrics``: sums over labels and processes, and percentiles between two readings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class Readings:
    """A reading of ``/metrics``; ``taken``: its time in seconds of any clock."""

    def __init__(self, text: str, taken: float) -> None:
        self.taken = taken
        self._samples: dict[str, list[Sample]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append(sample)

    def total(self, name: str, **labels: str) -> float:
        """Sum all samples of a name with these labels; 0 without any."""
        return sum(sample.value for sample in self._of(name) if labels.items() <= sample.labels.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sum by the value of a label."""
        sums: dict[str, float] = {}
        for sample in self._of(name):
            value = sample.labels.get(label, "")
            sums[value] = sums.get(value, 0.0) + sample.value
        return sums

    def buckets(self, name: str) -> dict[float, float]:
        """Return a histogram's cumulative counts by upper bound."""
        return {float(bound): count for bound, count in self.by(f"{name}_bucket", "le").items()}

    def _of(self, name: str) -> Iterable[Sample]:
        return self._samples.get(name, ())


class Distribution(NamedTuple):
    """Percentiles of a histogram's ``values``; NaN without values."""

    values: float
    p50: float
    p95: float
    p99: float


def rate(now: Readings, before: Readings, name: str, **labels: str) -> float:
    """Return the growth of a counter per second. A counter that went back belongs to a restarted process."""
    seconds = now.taken - before.taken
    return max(0.0, now.total(name, **labels) - before.total(name, **labels)) / seconds if seconds > 0 else 0.0


def distribution(now: Readings, before: Readings | None, name: str) -> Distribution:
    """Return percentiles of the values between two readings; ``before`` None: of all values."""
    earlier = {} if before is None else before.buckets(name)
    counts = {bound: max(0.0, count - earlier.get(bound, 0.0)) for bound, count in now.buckets(name).items()}
    count = counts.get(math.inf, 0.0)
    return Distribution(count, *(_quantile(counts, share) for share in (0.5, 0.95, 0.99)))


def _quantile(counts: dict[float, float], share: float) -> float:
    """Interpolate within the bucket, as Prometheus' histogram_quantile; the last finite bound caps the result."""
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
