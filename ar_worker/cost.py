"""A cost-model executor: it takes the time that a formula says, and draws deterministic codes.

For tests and load tests of everything around the model. A frame's codes are a function of the request's seed and the
frame's number alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ar_worker.interface import StepOutput
from common.config import ArCost
from common.cost_models import step_model
from common.messages import Array, StepPlan
from common.timeline import Timeline

CODEBOOKS = 10
CODES = 64  # of each codebook
_MULTIPLIERS = np.arange(1, CODEBOOKS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def codes_of(seed: int, frame: int) -> Array:
    """The codes of a frame, int16 [10]."""
    mixed = (np.uint64(seed & 0xFFFFFFFFFFFFFFFF) + np.uint64(frame + 1)) * _MULTIPLIERS
    return ((mixed ^ (mixed >> np.uint64(29))) % np.uint64(CODES)).astype(np.int16)


class CostExecutor:
    """See :class:`ar_worker.interface.Executor`. A step costs its base, and so much per row and per prefill token."""

    def __init__(self, slots: int, cost: ArCost) -> None:
        self._model = step_model(cost)
        self._length = cost.frames
        self._timeline = Timeline()
        self._seeds = [0] * slots
        self._frames = [0] * slots
        self.memory_bytes: dict[str, int] = {}

    def warm_up(self) -> None:
        """Nothing to warm."""

    def execute(self, plan: StepPlan, arrays: Sequence[Array]) -> StepOutput:
        """See :meth:`ar_worker.interface.Executor.execute`."""
        for assign in plan.assigned:
            self._seeds[assign.slot] = assign.sampling.seed
        rows = []
        for prefill in plan.prefills:
            if prefill.sample:
                self._frames[prefill.slot] = prefill.frame
                rows.append(prefill.slot)
        rows.extend(arrays[1].tolist())
        tokens = sum(prefill.tokens for prefill in plan.prefills)
        duration = self._model.step_seconds(len(rows), tokens)
        codes = np.array([self._draw(slot) for slot in rows], np.int16).reshape(-1, CODEBOOKS)
        ended = np.array([0 < self._length < self._frames[slot] for slot in rows], np.uint8)
        self._timeline.spend(duration)
        return StepOutput(codes, ended, duration)

    def _draw(self, slot: int) -> Array:
        codes = codes_of(self._seeds[slot], self._frames[slot])
        self._frames[slot] += 1
        return codes
