"""Event loop of the simulator: clients, gateway and devices around the real scheduler, under a virtual clock.

All that the simulator knows of the scheduler's core stands here.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.cost_models import CostModel
from common.messages import (
    Array,
    ArWorkerHello,
    DecodeDone,
    DecodePlan,
    Ended,
    Sampling,
    StepDone,
    StepPlan,
    Submit,
    VocoderWorkerHello,
)
from scheduler.core import Scheduler
from scheduler.simulate.devices import Gpu, Job
from scheduler.simulate.measure import Listener, Totals
from scheduler.simulate.workload import FRAME_SECONDS, Workload

AR, VOCODER, GATEWAY = "ar_worker", "vocoder_worker", "gateway"
GATEWAY_IN, GATEWAY_OUT = 0.003, 0.002  # seconds from the client to the scheduler, and from the vocoder to the client
CONTEXT = 32_768  # positions, as the S2 models have
VOCODER_SLOTS_PER_AR_SLOT = 2  # sound outlives generation
TIMER_RESOLUTION = 0.0001  # seconds; a wake-up is no sooner after a plan
RETRY_AFTER = 1.0  # seconds until a refused client of a closed loop comes again, unless it is told otherwise


class SimulationError(Exception):
    """The scheduler stopped early, or lost or duplicated frames."""


class Sizes(NamedTuple):
    """Of the AR worker."""

    slots: int
    pages: int
    page_size: int


class Cluster:
    """One run of a workload. ``clients``: of a closed loop, in which each sends a request when its last one has ended,
    and that begin within ``spread`` seconds; None: requests come when the workload says. ``warm_up``: requests at the
    beginning that are not measured."""

    def __init__(
        self,
        settings: Settings,
        cost: CostModel,
        sizes: Sizes,
        workload: Workload,
        warm_up: int,
        clients: int | None = None,
        spread: float = 0.0,
    ) -> None:
        self.now = 0.0
        self.listeners: list[Listener] = []  # by arrival
        self.lateness: list[float] = []  # seconds, of the chunks of measured streams
        self.begin: Totals | None = None  # at the first measured request
        self.end: Totals | None = None  # at the last request
        self.steps = self.rows = self.calls = self.frames = 0
        self._cost, self._workload, self._warm_up, self._clients = cost, workload, warm_up, clients
        self._spread = spread
        self._gpu = Gpu(cost.ar_contention, cost.vocoder_contention)
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._event_count = 0
        self._unfinished = len(workload.frames)
        self._frame = np.zeros(sizes.slots, np.int64)  # by slot: the number of the frame to come
        self._last = np.zeros(sizes.slots, np.int64)  # by slot: the frames its request has
        self._codes = np.zeros((sizes.slots, 10), np.int16)
        self._core = Scheduler(settings, FRAME_SECONDS)
        self._core.ar_joined(AR, ArWorkerHello(AR, sizes.slots, sizes.pages, sizes.page_size, CONTEXT, 0))
        self._core.vocoder_joined(VOCODER, VocoderWorkerHello(VOCODER, VOCODER_SLOTS_PER_AR_SLOT * sizes.slots, ""))
        self._core.attached(GATEWAY, VOCODER)

    def run(self) -> None:
        """Run until every request has ended.

        Raises:
            SimulationError: that does not happen, or frames are missing or too many.
        """
        for number in range(self._clients or 1):
            begin = self._spread * number / self._clients if self._clients else float(self._workload.arrivals[0])
            self._at(begin, self._arrive, None)
        wake = math.inf
        while self._unfinished or self._events or self._gpu.busy:
            self.now = min(self._gpu.next_end, wake, self._events[0][0] if self._events else math.inf)
            if math.isinf(self.now):
                raise SimulationError(f"{self._unfinished} requests wait and nothing happens any more")
            self._take_answers()
            while self._events and self._events[0][0] <= self.now:
                _, _, happen, payload = heapq.heappop(self._events)
                happen(payload)
            wake = self._carry_out()
        if not self._core.idle():
            raise SimulationError("all requests have ended, and the scheduler still holds something")

    def _at(self, time: float, happen: Callable[[Any], None], payload: Any) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (time, self._event_count, happen, payload))

    def totals(self) -> Totals:
        """Return the totals up to now."""
        buffered = sum(max(0.0, listener.play_end - self.now) for listener in self.listeners)
        busy = self._gpu.ar.busy_seconds, self._gpu.vocoder.busy_seconds
        return Totals(self.now, *busy, self.steps, self.rows, self.calls, self.frames, buffered)

    # Clients ---------------------------------------------------------------------------------------------------------

    def _arrive(self, _: None) -> None:
        """Submit the next request of the workload."""
        index, workload = len(self.listeners), self._workload
        if index == len(workload.frames):
            return  # a client of a closed loop has nothing left to ask
        self.listeners.append(Listener(self.now, bool(workload.streaming[index])))
        self._at(self.now + GATEWAY_IN, self._submit, index)
        if index == self._warm_up:
            self.begin = self.totals()
        if index + 1 == len(workload.frames):
            self.end = self.totals()
        elif self._clients is None:
            self._at(float(workload.arrivals[index + 1]), self._arrive, None)

    def _submit(self, index: int) -> None:
        workload, prompt = self._workload, self._workload.prompt(index)
        body = Submit(
            request=str(index),
            output="audio",
            streaming=bool(workload.streaming[index]),
            sampling=Sampling(0.8, 0.8, 0.8, 30, seed=index),
            max_frames=int(workload.max_frames[index]),
            turns=[prompt.shape[1]],
            deadline=workload.deadline,
        )
        self._core.submit(GATEWAY, body, prompt, self.now)

    def _hear(self, plan: DecodePlan) -> None:
        """Deliver the sound of a call to the clients, which read it at once."""
        for item in plan.items:
            index = int(item.request)
            listener = self.listeners[index]
            if listener.refused:
                continue  # given up while this was on its way
            first = listener.heard == 0
            late = listener.hear(item.frames, self.now)
            if index >= self._warm_up and listener.streaming and not first:
                self.lateness.append(late)
            self._core.credit(item.request, listener.heard)
            self._leave(listener)

    def _end(self, body: Ended) -> None:
        listener = self.listeners[int(body.request)]
        listener.reason, listener.frames, listener.refused = body.reason, body.frames, body.failure is not None
        if body.failure is not None:
            self._leave(listener, body.failure.retry_after or RETRY_AFTER)
        else:
            self._check(int(body.request), body)
            self._leave(listener)

    def _check(self, index: int, body: Ended) -> None:
        expected = int(min(self._workload.frames[index], self._workload.max_frames[index]))
        if body.frames != expected or self.listeners[index].heard > expected:
            raise SimulationError(f"request {index} has {body.frames} frames, not {expected}")

    def _leave(self, listener: Listener, pause: float = 0.0) -> None:
        if listener.complete:
            self._unfinished -= 1
            if self._clients is not None:
                self._at(self.now + pause, self._arrive, None)

    # Workers ---------------------------------------------------------------------------------------------------------

    def _carry_out(self) -> float:
        """Let the scheduler plan and start its plans; returns when it wants to be woken."""
        for _, body, arrays in self._core.plan(self.now):
            if isinstance(body, StepPlan):
                self._start_step(body, arrays)
            elif isinstance(body, DecodePlan):
                self._start_call(body)
            elif isinstance(body, Ended):
                self._at(self.now + GATEWAY_OUT, self._end, body)
            else:
                raise SimulationError(f"nobody expects {body}")
        wake_at = self._core.wake_at()
        return math.inf if wake_at is None else max(wake_at, self.now + TIMER_RESOLUTION)

    def _start_step(self, plan: StepPlan, arrays: list[Array]) -> None:
        for assign in plan.assigned:
            listener = self.listeners[assign.sampling.seed]
            listener.started = self.now if math.isnan(listener.started) else listener.started
            self._last[assign.slot] = self._workload.frames[assign.sampling.seed]
        sampled = [prefill for prefill in plan.prefills if prefill.sample]
        for prefill in sampled:
            self._frame[prefill.slot] = prefill.frame
        rows = np.concatenate([np.array([prefill.slot for prefill in sampled], np.int64), arrays[1]])
        ended = (self._frame[rows] >= self._last[rows]).astype(np.uint8)
        self._frame[rows] += 1
        self.steps += 1
        self.rows += len(rows)
        seconds = self._cost.step_seconds(len(rows), arrays[0].shape[1])
        self._gpu.start(self._gpu.ar, Job(seconds, (plan, ended)), self.now)

    def _start_call(self, plan: DecodePlan) -> None:
        frames = sum(item.frames for item in plan.items)
        self.calls += 1
        self._gpu.start(self._gpu.vocoder, Job(self._cost.call_seconds(frames), (plan, frames)), self.now)

    def _take_answers(self) -> None:
        if self._gpu.next_end > self.now:
            return
        for device, payload, duration in self._gpu.finish(self.now):
            if device is self._gpu.ar:
                plan, ended = payload
                done = StepDone(plan.step, duration, plan.registration)
                self._core.step_done(AR, done, self._codes[: len(ended)], ended, self.now)
            else:
                plan, frames = payload
                self.frames += frames
                self._core.decode_done(VOCODER, DecodeDone(plan.call, duration, [], plan.registration), self.now)
                self._at(self.now + GATEWAY_OUT, self._hear, plan)
