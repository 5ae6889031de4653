"""A cost-model executor: takes the time that a formula gives, and draws deterministic codes.

For tests and load tests of everything around the model. A frame's codes are a function of the request's seed and the
frame's number alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ar_worker.executor import StepOutput
from common.checkpoint import NUM_CODEBOOKS
from common.config import ArCost
from common.cost_device import CostDevice
from common.cost_models import step_model
from common.messages import Array, StepPlan

CODES = 64  # of each codebook
PAGES = 2048
DISTINCT = 65_536  # frames, after which codes come again


def drawn_codes() -> Array:
    """Pseudo-random codes, int16 [DISTINCT, 10]."""
    numbers = np.arange(1, DISTINCT + 1, dtype=np.uint64)[:, None]
    mixed = numbers * (np.arange(1, NUM_CODEBOOKS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return ((mixed ^ (mixed >> np.uint64(29))) % np.uint64(CODES)).astype(np.int16)


class CostExecutor:
    """See :class:`ar_worker.executor.Executor`. A step costs its base, and so much per row and per prefill token."""

    device = "none"
    depth = 1
    frame_path = "cost"

    def __init__(self, slots: int, cost: ArCost, pages: int = 0) -> None:
        """``pages`` 0: :data:`PAGES`."""
        self.pages = pages or PAGES
        self._model = step_model(cost)
        self._length = cost.frames
        self._device = CostDevice(cost.hang_file)
        self._poison = cost.poison_seed
        self._codes = drawn_codes()
        self._seeds = np.zeros(slots, np.int64)
        self._frames = np.zeros(slots, np.int64)
        self.memory_bytes: dict[str, int] = {}

    def warm_up(self) -> None:
        """Nothing to warm."""

    def launch(self, plan: StepPlan, arrays: Sequence[Array], arrived: float = 0.0) -> StepOutput:
        """See :meth:`ar_worker.executor.Executor.launch`. Returns when the step is done."""
        for assign in plan.assigned:
            self._seeds[assign.slot] = assign.sampling.seed
            if assign.sampling.seed == self._poison:
                raise RuntimeError("a poisoned request")
        sampled = [prefill for prefill in plan.prefills if prefill.sample]
        for prefill in sampled:
            self._frames[prefill.slot] = prefill.frame
        rows = np.concatenate([np.array([prefill.slot for prefill in sampled], np.int64), arrays[1]])
        frames = self._frames[rows]
        self._frames[rows] += 1
        codes = self._codes[(self._seeds[rows] + frames) % DISTINCT]
        ended = ((self._length > 0) & (frames >= self._length)).astype(np.uint8)
        duration = self._model.step_seconds(len(rows), sum(prefill.tokens for prefill in plan.prefills))
        self._device.spend(duration, arrived)
        return StepOutput(codes, ended, duration)

    def resolve(self, ticket: StepOutput) -> StepOutput:
        """See :meth:`ar_worker.executor.Executor.resolve`."""
        return ticket
