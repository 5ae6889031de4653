"""Published and derived costs of serving S2 on one H200: presets for the cost-model executors and the simulator.

A step takes base + per sequence + per prefill token; a vocoder call takes base + per frame. While a step and a call run
on one GPU at once, the step's work takes ``ar_contention`` times as long, and the call's ``vocoder_contention`` times.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from common.config import ArCost, VocoderCost


class CostModel(Struct, frozen=True):
    """All times in milliseconds."""

    step_base_ms: float
    step_per_sequence_ms: float
    step_per_prefill_token_ms: float
    call_base_ms: float
    call_per_frame_ms: float
    ar_contention: float = 1.3
    vocoder_contention: float = 1.7

    def step_seconds(self, sequences: int, prefill_tokens: int) -> float:
        """Seconds of a step that draws a frame for these sequences and prefills these positions; 0 if it is empty."""
        if not sequences and not prefill_tokens:
            return 0.0
        rows, tokens = self.step_per_sequence_ms * sequences, self.step_per_prefill_token_ms * prefill_tokens
        return (self.step_base_ms + rows + tokens) / 1000

    def call_seconds(self, frames: int) -> float:
        """Seconds of a vocoder call of this many frames."""
        return (self.call_base_ms + self.call_per_frame_ms * frames) / 1000


COST_MODELS = {
    # Weights of 15.3 GB per frame at 4.3 TB/s; per stream 650 positions of KV and 16 GFLOP.
    "h200-bf16": CostModel(4.0, 0.050, 0.0123, 3.0, 0.08),
    # Fitted to the figures published with S2 Pro: RTF 0.195 alone, 300 frames/s at RTF 0.5.
    "h200-published": CostModel(6.30, 2.36, 0.020, 4.0, 0.10),
    # Fitted to the published concurrency sweep of S2.1 in FP8.
    "h200-s21-fp8": CostModel(3.0, 0.0012, 0.003, 2.0, 0.033, ar_contention=1.02),
}


def step_model(cost: ArCost) -> CostModel:
    """The cost model of an AR worker's configuration."""
    given = {
        "step_base_ms": cost.base_ms,
        "step_per_sequence_ms": cost.per_sequence_ms,
        "step_per_prefill_token_ms": cost.per_prefill_token_ms,
    }
    return _replaced(cost.preset, given)


def call_model(cost: VocoderCost) -> CostModel:
    """The cost model of a vocoder worker's configuration."""
    return _replaced(cost.preset, {"call_base_ms": cost.base_ms, "call_per_frame_ms": cost.per_frame_ms})


def _replaced(preset: str, given: dict[str, float | None]) -> CostModel:
    prices = {name: price for name, price in given.items() if price is not None}
    return msgspec.structs.replace(COST_MODELS[preset], **prices)
