"""What the worker's compute thread asks of whatever executes its steps: the model, or a cost model of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from common.messages import Array, StepPlan


class StepOutput(NamedTuple):
    """Result of a step. Rows: prefills with ``sample`` in the plan's order, then the decodes in order."""

    codes: Array  # int16 [n, 10]
    ended: Array  # uint8 [n], 1 where the end token was drawn
    duration: float  # seconds on the device


class Executor(Protocol):
    """Executes one step at a time; keeps everything that outlives a step."""

    @property
    def device(self) -> object:
        """Where it computes; its string is torch's name for it."""

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Memory held for good, by purpose."""

    def warm_up(self) -> None:
        """Run what a first step would be slow at. Call before the first plan; leaves no trace."""

    def execute(self, plan: StepPlan, arrays: Sequence[Array], arrived: float = 0.0) -> StepOutput:
        """Execute a plan with its arrays, as described at :class:`StepPlan`.

        ``arrived`` (time.monotonic()) is when the plan came: a cost model of a device begins the step then, or when the
        step before is done.

        Raises:
            ValueError: the plan is not executable; nothing was changed.
        """
