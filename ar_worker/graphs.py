"""Frames as graphs: one per batch bucket, captured before the worker is ready, replayed ever after."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from ar_worker.device import Device
from ar_worker.executor import CaptureError
from ar_worker.runner import FrameRunner
from ar_worker.step_inputs import StepInputs
from ar_worker.step_rows import FramePlan

GRAPH_RANKS = 32
"""Candidates that captured draws look at; a frame with a greater ``top_k`` runs without a graph."""

log = logging.getLogger(__name__)


def padding_plan(slots: int, bucket: int) -> FramePlan:
    """A frame of nothing but padding rows, for ``slots`` slots."""
    return FramePlan(
        slots=np.full(bucket, slots, np.int64),
        advance=np.ones((bucket, 2), np.int64) * np.array([0, 1]),
        prefilled=np.ones(bucket, bool),
        begins=np.zeros(bucket, bool),
        groups=[],
        order=np.zeros(0, np.int64),
    )


class FrameGraphs:
    """The graphs of a runner's frames.

    Args:
        inputs: a step's inputs; a frame's rows lie first in them, so at the same addresses in every step.
    """

    def __init__(self, runner: FrameRunner, device: Device, inputs: StepInputs, slots: int) -> None:
        self._runner, self._device, self._inputs, self._slots = runner, device, inputs, slots
        self._replays: dict[int, Callable[[], None]] = {}
        self._sealed = False
        self.replayed = 0

    def capture(self, buckets: Sequence[int]) -> None:
        """Capture a graph per bucket, the largest first, so that the others fit into its memory; then seal.

        Raises:
            CaptureError: a capture failed, or the graphs are sealed already.
        """
        if self._sealed:
            raise CaptureError("graphs are captured before the first step only")
        for bucket in sorted(buckets, reverse=True):
            started = time.perf_counter()
            try:
                self._replays[bucket] = self._capture(bucket)
            except RuntimeError as error:
                raise CaptureError(f"the graph of {bucket} rows: {error}") from error
            log.info("captured a frame", extra={"rows": bucket, "seconds": round(time.perf_counter() - started, 2)})
        self._sealed = True

    def _capture(self, bucket: int) -> Callable[[], None]:
        self._inputs.begin()
        rows = self._runner.put(padding_plan(self._slots, bucket), self._inputs.put)
        self._device.copy_in(*self._inputs.used)
        return self._device.capture(lambda: self._runner.run_static(rows, GRAPH_RANKS))

    def replay(self, bucket: int, step: int) -> None:
        """Run the frame of a bucket, whose rows are in the inputs, into the output's place of ``step``."""
        self._replays[bucket]()
        self._runner.publish(bucket, step)
        self.replayed += 1
