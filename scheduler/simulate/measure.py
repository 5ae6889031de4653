"""Measurements of what listeners hear, and their summary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from common.messages import FinishReason
from scheduler.simulate.workload import FRAME_SECONDS

NOTICEABLE = 0.001  # seconds of silence that count as an underrun


@dataclass(slots=True)
class Listener:
    """A listener that plays at once and resumes after an underrun. Times in seconds."""

    arrived: float
    streaming: bool
    started: float = math.nan  # its first part in a step
    first_audio: float = math.nan
    play_end: float = -math.inf  # when all that came so far has been played
    heard: int = 0  # frames
    underrun: float = 0.0
    frames: int | None = None  # in all, once that is known
    reason: FinishReason | None = None
    refused: bool = False

    @property
    def complete(self) -> bool:
        return self.reason is not None and (self.refused or self.heard == self.frames)

    def hear(self, frames: int, now: float) -> float:
        """Take a chunk and return its lateness in seconds: 0 for the first and for chunks in time."""
        late = max(0.0, now - self.play_end) if self.heard else 0.0
        if self.heard == 0:
            self.first_audio = now
        if late > NOTICEABLE:
            self.underrun += late
        self.play_end = max(self.play_end, now) + frames * FRAME_SECONDS
        self.heard += frames
        return late


class Totals(NamedTuple):
    """Counts from the beginning of a run up to a moment."""

    now: float
    ar_busy: float  # seconds
    vocoder_busy: float
    steps: int
    rows: int
    calls: int
    frames: int  # spoken
    buffered: float  # seconds of sound that all listeners have left together


class Percentiles(Struct, frozen=True):
    p50: float
    p95: float
    p99: float


class Summary(Struct, frozen=True):
    """Summary of a run without its warm-up. Times in seconds; NaN where nothing was measured.

    ``offered``, ``goodput``: requests per second. ``throughput``: seconds of audio per second. ``drained``: by how much
    less was delivered than played, as a share of what was played; it is what listeners lived on from their reserves.
    """

    requests: int
    refused_share: float  # refused, timed out or failed
    ttfa: Percentiles
    queue_wait: Percentiles
    underrun_share: float  # of the streams
    underrun_seconds: float  # in all
    lateness: Percentiles  # of chunks
    offered: float
    goodput: float
    throughput: float
    drained: float
    ar_busy: float  # share of the time
    vocoder_busy: float
    mean_batch: float  # sequences per step
    mean_call: float  # frames per vocoder call


def percentiles(values: list[float]) -> Percentiles:
    """Return a percentile of ``values``; NaN without values."""
    return Percentiles(*np.percentile(values, [50, 95, 99]).tolist()) if values else Percentiles(*3 * [math.nan])


def summarise(listeners: list[Listener], lateness: list[float], begin: Totals, end: Totals, slo_ttfa: float) -> Summary:
    """Summarize the requests of ``listeners`` that arrived from ``begin`` to ``end``."""
    streams = [listener for listener in listeners if listener.streaming and not listener.refused]
    good = sum(stream.first_audio - stream.arrived <= slo_ttfa and stream.underrun == 0 for stream in streams)
    span = end.now - begin.now
    delivered = (end.frames - begin.frames) * FRAME_SECONDS
    played = delivered - (end.buffered - begin.buffered)
    return Summary(
        requests=len(listeners),
        refused_share=_ratio(sum(listener.refused for listener in listeners), len(listeners)),
        ttfa=percentiles([stream.first_audio - stream.arrived for stream in streams]),
        queue_wait=percentiles([item.started - item.arrived for item in listeners if not math.isnan(item.started)]),
        underrun_share=_ratio(sum(stream.underrun > 0 for stream in streams), len(streams)),
        underrun_seconds=sum(stream.underrun for stream in streams),
        lateness=percentiles(lateness),
        offered=_ratio(len(listeners) - 1, span),
        goodput=_ratio(good, span),
        throughput=_ratio(delivered, span),
        drained=_ratio(played - delivered, played),
        ar_busy=_ratio(end.ar_busy - begin.ar_busy, span),
        vocoder_busy=_ratio(end.vocoder_busy - begin.vocoder_busy, span),
        mean_batch=_ratio(end.rows - begin.rows, end.steps - begin.steps),
        mean_call=_ratio(end.frames - begin.frames, end.calls - begin.calls),
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
