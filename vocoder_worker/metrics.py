"""Metrics of the vocoder worker."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from common.metrics import QUEUE_MESSAGES, QUEUE_MESSAGES_HELP, Families
from vocoder_worker.executor import Executor


class VocoderMetrics:
    """Metrics that only this process can take; the scheduler counts the calls."""

    def __init__(self, registry: CollectorRegistry, executor: Executor) -> None:
        self.families = Families(registry)
        memory = self.families.gauge("shoal_vocoder_memory_bytes", "Memory of the codec, by use.", "use")
        memory.labels("weights").set(executor.weight_bytes)
        memory.labels("state").set(executor.state_bytes)
        clips = self.families.counter("shoal_reference_encodes_total", "Recordings encoded, by outcome.", "outcome")
        self.encoded, self.refused = clips.labels("encoded"), clips.labels("refused")
        self.padding = self.families.counter(
            "shoal_vocoder_padding_frames_total", "Frames computed only to make the streams of a batch equally long."
        )
        self.queues = self.families.computed(QUEUE_MESSAGES, QUEUE_MESSAGES_HELP, "link")
