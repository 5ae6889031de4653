"""The interface between the worker's compute loop and whatever executes its steps: the model, or a cost model of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from common.messages import Array, StepPlan

CAPTURE_EXIT_CODE = 92
"""Exit code of a worker whose capture failed. Device faults have 90, hangs 91."""


class CaptureError(RuntimeError):
    """A graph can't be captured. The device may be unusable in this process from then on."""


class MemoryPlanError(RuntimeError):
    """The model can't be served with this memory; the message has the numbers."""


class StepOutput(NamedTuple):
    """Result of a step. Rows: prefills with ``sample`` in the plan's order, then the decodes in order."""

    codes: Array  # int16 [n, 10]
    ended: Array  # uint8 [n], 1 where the end token was drawn
    duration: float  # seconds on the device


class Executor(Protocol):
    """Executes steps in order; keeps everything that outlives a step."""

    @property
    def device(self) -> object:
        """The device that computes; its string is torch's name for it."""

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Memory held for good, by purpose."""

    @property
    def depth(self) -> int:
        """Most steps that may be launched and not resolved. 1: a launch returns when the step is done."""

    @property
    def pages(self) -> int:
        """Pages of the KV pool."""

    @property
    def frame_path(self) -> str:
        """The way frames run: ``graph`` (CUDA graphs), ``eager`` (PyTorch), ``native`` (C++) or ``cost``."""

    def warm_up(self) -> None:
        """Run what a first step would be slow at. Call before the first plan; leaves no trace.

        Raises:
            CaptureError: a graph can't be captured.
        """

    def launch(self, plan: StepPlan, arrays: Sequence[Array], arrived: float = 0.0) -> Any:
        """Begin a plan with its arrays, as described at :class:`StepPlan`; returns its ticket.

        ``arrived`` (time.monotonic()) is when the plan came: a cost model of a device begins the step then, or when the
        step before is done.

        Raises:
            ValueError: the plan is not executable; nothing was changed.
        """

    def resolve(self, ticket: Any) -> StepOutput:
        """Wait for the end of a step; its result. Tickets are resolved in the order of their launch, each once."""
