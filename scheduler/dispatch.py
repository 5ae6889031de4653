"""Dispatch: gives each worker its next steps and calls as soon as it can take them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from typing import TypeVar

from scheduler.outbox import Outgoing
from scheduler.planning.calls import CallPlanner
from scheduler.planning.steps import StepPlanner
from scheduler.workers.ar_worker import ArWorker
from scheduler.workers.pool import WorkerPool
from scheduler.workers.vocoder_worker import VocoderWorker

T = TypeVar("T")
W = TypeVar("W", ArWorker, VocoderWorker)

log = logging.getLogger(__name__)


class Dispatcher:
    """``look_ahead``: plan before the step or call at work is answered.

    ``give_up``: called with a worker for which planning failed by an exception that no request explains; its state is
    unknown, and it has to start over.
    """

    def __init__(
        self,
        pool: WorkerPool,
        steps: StepPlanner,
        calls: CallPlanner,
        look_ahead: bool,
        give_up: Callable[[str, float], None],
    ) -> None:
        self._pool, self._steps, self._calls = pool, steps, calls
        self._look_ahead, self._give_up = look_ahead, give_up
        self.call_at = math.inf  # when a call may be sent for which it is too early now

    def steps(self, now: float) -> Iterator[Outgoing]:
        """Plan steps, each when the caller asks for it: a worker may be lost by then."""
        for worker in list(self._pool.ar_workers.values()):
            most = 1 + (worker.ahead if self._look_ahead else 0)
            while worker.incarnation in self._pool.ar_workers and len(worker.in_flight) < most:
                step = self._guarded(worker, lambda worker: self._steps.plan(worker, now), now)
                if step is None:
                    break
                yield Outgoing(worker.incarnation, step.plan, step.arrays)

    def calls(self, now: float) -> list[Outgoing]:
        """Plan a call for each vocoder worker that can take one now."""
        self.call_at = math.inf
        planned = [self._call(vocoder, now) for vocoder in list(self._pool.vocoders.values())]
        return [call for call in planned if call is not None]

    def _call(self, vocoder: VocoderWorker, now: float) -> Outgoing | None:
        call_at = vocoder.next_call_at(self._look_ahead)
        if call_at > now:
            if vocoder.unsent:
                self.call_at = min(self.call_at, call_at)
            return None
        call = self._guarded(vocoder, lambda vocoder: self._calls.plan(vocoder, now), now)
        return None if call is None else Outgoing(vocoder.incarnation, call.plan, call.arrays)

    def _guarded(self, worker: W, plan: Callable[[W], T], now: float) -> T | None:
        try:
            return plan(worker)
        except Exception:
            log.exception("planning failed", extra={"peer": worker.name})
            self._give_up(worker.incarnation, now)
            return None
