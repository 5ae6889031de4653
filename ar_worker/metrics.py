"""The AR worker's metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from ar_worker.executor import Executor
from ar_worker.kernels.calls import totals
from common.metrics import QUEUE_MESSAGES, QUEUE_MESSAGES_HELP, Families


class ArMetrics:
    """Metrics that only this process knows. The scheduler counts its steps."""

    def __init__(self, registry: CollectorRegistry, executor: Executor) -> None:
        self.families = Families(registry)
        memory = self.families.gauge("shoal_ar_memory_bytes", "Memory of the AR model, by use.", "use")
        for use, amount in executor.memory_bytes.items():
            memory.labels(use).set(amount)
        path = self.families.gauge("shoal_ar_frame_path", "1 for the way in which frames run.", "path")
        path.labels(executor.frame_path).set(1)
        kernels = self.families.computed(
            "shoal_ar_kernel_calls",
            "Calls of functions that have kernels, by what served them; a captured call counts once.",
            "path",
        )
        kernels.values = totals
        self.queues = self.families.computed(QUEUE_MESSAGES, QUEUE_MESSAGES_HELP, "link")
