"""The vocoder worker's metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from vocoder_worker.protocol import Executor


class VocoderMetrics:
    """What only this process knows; its calls are counted by the scheduler."""

    def __init__(self, registry: CollectorRegistry, executor: Executor) -> None:
        memory = Gauge("shoal_vocoder_memory_bytes", "Memory of the codec by use", ["use"], registry=registry)
        memory.labels("weights").set(executor.weight_bytes)
        memory.labels("state").set(executor.state_bytes)
        self.clips = Counter(
            "shoal_reference_encodes_total", "Reference clips encoded, by outcome", ["outcome"], registry=registry
        )
