"""Metrics of the gateway's engine client: what faults cost the streams."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from prometheus_client import CollectorRegistry

from common.metrics import WAIT_SECONDS, Families

ResumeCause: TypeAlias = Literal["scheduler", "vocoder", "hole", "silence"]


class EngineMetrics:
    """Counts resumed streams and how long each stood still."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.families = Families(registry)
        resumes = self.families.counter(
            "shoal_stream_resumes_total",
            "Times that the gateway asked for the rest of a stream: the scheduler or the connection to a vocoder was "
            "lost, frames were missing (hole), or nothing came for long (silence).",
            "cause",
        )
        self.resumes = {cause: resumes.labels(cause) for cause in get_args(ResumeCause)}
        self.pause = self.families.histogram(
            "shoal_stream_fault_pause_seconds",
            "From the last frame before a stream was resumed to the first one after.",
            WAIT_SECONDS,
        )
