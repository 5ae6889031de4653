"""Tempo change at constant pitch with FFmpeg's ``atempo`` through PyAV. Needs the extra ``codecs``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import av
import numpy as np
from av.filter import Graph

from common.messages import Array

_FACTORS = (0.5, 2.0)  # of one filter; beyond, several are chained
_PUSH_SECONDS = 0.1  # of silence at a time, to push out what the filters keep back
_MAX_PUSHES = 30


class Tempo:
    """Stateful filter. The total output has the input's length divided by ``speed``, to the sample."""

    def __init__(self, rate: int, speed: float) -> None:
        self._rate, self._speed = rate, speed
        self._start()

    def process(self, samples: Array) -> Array:
        """Filter the next samples, float32 [n]; returns what is ready."""
        self._taken += len(samples)
        out = self._push(samples) if len(samples) else samples
        self._given += len(out)
        return out

    def drain(self) -> Array:
        """Return the samples held back and reset the filter."""
        missing = round(self._taken / self._speed) - self._given
        silence = np.zeros(int(_PUSH_SECONDS * self._rate), np.float32)
        parts: list[Array] = [np.zeros(0, np.float32)]
        for _ in range(_MAX_PUSHES):
            if sum(map(len, parts)) >= missing:
                break
            parts.append(self._push(silence))
        self._start()
        return np.concatenate(parts)[: max(0, missing)]

    def _start(self) -> None:
        self._taken = self._given = self._position = 0
        self._graph = Graph()
        source = self._graph.add_abuffer(
            sample_rate=self._rate, format="flt", layout="mono", time_base=Fraction(1, self._rate)
        )
        filters = [self._graph.add("atempo", f"{factor:.9f}") for factor in _factors(self._speed)]
        self._graph.link_nodes(source, *filters, self._graph.add("abuffersink")).configure()

    def _push(self, samples: Array) -> Array:
        frame = av.AudioFrame.from_ndarray(samples[np.newaxis], format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = self._rate, self._position, Fraction(1, self._rate)
        self._position += len(samples)
        self._graph.push(frame)
        return np.concatenate([np.zeros(0, np.float32), *self._pull()])

    def _pull(self) -> Iterator[Array]:
        while True:
            try:
                yield self._graph.pull().to_ndarray().reshape(-1)
            except BlockingIOError:
                return


def _factors(speed: float) -> list[float]:
    """Split ``speed`` into factors that one filter handles well."""
    slowest, fastest = _FACTORS
    factors = []
    while speed < slowest:
        factors.append(slowest)
        speed /= slowest
    while speed > fastest:
        factors.append(fastest)
        speed /= fastest
    return [*factors, speed]
