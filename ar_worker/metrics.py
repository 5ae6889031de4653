"""The AR worker's metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from ar_worker.interface import Executor


class ArMetrics:
    """What only this process knows; its steps are counted by the scheduler."""

    def __init__(self, registry: CollectorRegistry, executor: Executor) -> None:
        memory = Gauge("shoal_ar_memory_bytes", "Memory of the AR model by use", ["use"], registry=registry)
        for use, amount in executor.memory_bytes.items():
            memory.labels(use).set(amount)
