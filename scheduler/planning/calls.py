"""Planning of a vocoder call: the streams whose frames become sound now, and how many of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import Array, DecodeItem, DecodePlan
from scheduler.planning.policy import Policy
from scheduler.workers.pool import WorkerPool
from scheduler.workers.vocoder_worker import Call, CallItem, Stream, VocoderWorker


class PlannedCall(NamedTuple):
    plan: DecodePlan
    arrays: list[Array]  # codes int16 [frames, 10]


class CallPlanner:
    """Plans calls. ``window``: frames that may be with a client unread."""

    def __init__(self, pool: WorkerPool, settings: Settings, policy: Policy, window: int) -> None:
        self._pool, self._settings, self._policy, self._window = pool, settings, policy, window

    def plan(self, worker: VocoderWorker, now: float) -> PlannedCall | None:
        """Plan the worker's next call; None while no stream has a chunk ready."""
        ready = [stream for stream in worker.streams.values() if self._ready(stream, now)]
        if not ready:
            return None
        policy = self._policy
        ready.sort(key=lambda stream: policy.urgency(stream.request, now))
        call = _Builder(worker, self._settings, now, self._window)
        for stream in ready:
            call.add(stream, self._settings.max_call_frames)
        due, target = call.frames, policy.fill_target(worker)
        if call.frames < target:
            # Other streams follow at the price of their frames; a call of their own would cost its base as well.
            chosen = {stream.request.id for stream in ready}
            others = [stream for stream in worker.streams.values() if stream.request.id not in chosen]
            for stream in sorted(others, key=lambda stream: policy.urgency(stream.request, now)):
                call.add(stream, target)
        return call.finish(due)

    def _ready(self, stream: Stream, now: float) -> bool:
        request, playback = stream.request, stream.request.playback
        frames = request.unsent
        if frames <= 0:
            return False
        if playback.sent < playback.delivered:
            return True  # rebuilds the state that a lost worker had
        room = playback.read + self._window - playback.sent
        if frames > room:  # the client leaves no room for more
            return room > 0
        if request.generated or request.resting:
            return True
        return self._policy.due(request, frames, stream.worker, self._pool.step_seconds(request), now)


class _Builder:
    """Collects one call."""

    def __init__(self, worker: VocoderWorker, settings: Settings, now: float, window: int) -> None:
        self.worker, self.settings, self.now, self.window = worker, settings, now, window
        self.items: list[DecodeItem] = []
        self.codes: list[Array] = []
        self.ends: list[CallItem] = []
        self.frames = 0

    def add(self, stream: Stream, most: int) -> None:
        """Add a stream's next frames, as far as its client's reading and ``most`` frames in all allow."""
        request, playback = stream.request, stream.request.playback
        room = min(self.window + playback.read - playback.sent, most - self.frames)
        frames = min(request.unsent, self.settings.max_chunk, room)
        if frames <= 0:
            return
        first, slot = playback.sent, stream.lease.slot
        reset = first == 0
        starts = request.history.turn_starts_in(first, frames)
        item = DecodeItem(request.id, request.gateway, slot, first, frames, reset, playback.delivered, starts)
        self.items.append(item)
        self.codes.append(request.history.codes(first, frames))
        playback.send(frames, self.now)
        self.worker.unsent -= frames
        self.ends.append(CallItem(stream, playback.sent))
        self.frames += frames

    def finish(self, due: int) -> PlannedCall:
        worker = self.worker
        call = Call(worker.calls, self.ends, self.frames, due, self.now)
        worker.in_flight.append(call)
        worker.calls += 1
        return PlannedCall(DecodePlan(call.number, self.items, worker.registration), [np.concatenate(self.codes)])
