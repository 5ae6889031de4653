"""Cost-model executor: takes as long as a formula says and turns codes into a deterministic tone.

For tests and load tests of everything around the codec. A frame of sound depends on its own codes and number alone, so
the joined stream does not depend on how it was cut.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from common.checkpoint import CodecConfig
from common.config import VocoderCost
from common.cost_device import CostDevice
from common.cost_models import call_model
from common.messages import Array, DecodeItem
from vocoder_worker.executor import DecodeOutput

ENCODE_SPAN = 16  # frames
LOWEST_PITCH = 100.0  # Hz
FIRST_CODES, SECOND_CODES = 512, 64  # codes that differ in sound
PITCHES = FIRST_CODES + SECOND_CODES - 1


class CostEncodeJob:
    """Encoding that derives codes from the loudness of each frame; each span takes the base cost of a call."""

    def __init__(self, samples: Array, hop: int, device: CostDevice, span_seconds: float) -> None:
        padded = np.pad(samples, (0, -len(samples) % hop)).reshape(-1, hop)
        self._levels = (np.abs(padded).mean(axis=1) * 1000).astype(np.int16)
        self._device, self._span_seconds = device, span_seconds
        self._done = 0

    def advance(self) -> bool:
        self._device.spend(self._span_seconds, time.monotonic())
        self._done = min(self._done + ENCODE_SPAN, len(self._levels))
        return self._done == len(self._levels)

    @property
    def codes(self) -> Array:
        """Codes so far, int16 [10, frames]."""
        return np.tile(self._levels[: self._done] % 64, (10, 1))


class CostExecutor:
    """An executor whose calls take a base cost and a cost per frame. See :class:`vocoder_worker.executor.Executor`."""

    device = "none"
    weight_bytes = 0
    state_bytes = 0

    def __init__(self, codec: CodecConfig, slots: int, cost: VocoderCost) -> None:
        self.sample_rate, self.hop, self.slots = codec.sample_rate, codec.hop, slots
        self._model = call_model(cost)
        self._device = CostDevice(cost.hang_file)
        pitches = LOWEST_PITCH + np.arange(PITCHES, dtype=np.float32)[:, None]
        seconds = np.arange(self.hop, dtype=np.float32) / np.float32(codec.sample_rate)
        self._tones = (0.25 * np.sin(2 * np.pi * pitches * seconds)).astype(np.float32)  # [pitches, hop]

    def warm_up(self) -> None:
        """Do nothing: there is nothing to warm up."""

    def decode(self, items: Sequence[DecodeItem], codes: Array) -> DecodeOutput:
        """Return one quiet tone per frame, whose pitch is given by the first two codes."""
        began = time.monotonic()
        duration = self._model.call_seconds(len(codes))
        tones = self._tones[codes[:, 0] % FIRST_CODES + codes[:, 1] % SECOND_CODES].reshape(-1)
        ends = np.cumsum([item.frames * self.hop for item in items])
        self._device.spend(duration, began)
        return DecodeOutput(np.split(tones, ends[:-1]), duration, padding=0)

    def start_encode(self, samples: Array) -> CostEncodeJob:
        """See :meth:`vocoder_worker.executor.Executor.start_encode`."""
        return CostEncodeJob(samples, self.hop, self._device, self._model.call_seconds(0))
