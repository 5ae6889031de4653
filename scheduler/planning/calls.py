"""Planning of a vocoder call: the streams whose frames become sound now, and how many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from common.config import Scheduler as Settings
from common.messages import Array, DecodeItem, DecodePlan
from scheduler.planning.policy import Policy
from scheduler.requests.request import Request
from scheduler.workers.pool import WorkerPool
from scheduler.workers.vocoder_worker import Call, CallItem, Stream, VocoderWorker

T = TypeVar("T")


class PlannedCall(NamedTuple):
    plan: DecodePlan
    arrays: list[Array]  # codes int16 [frames, 10]


class CallPlanner:
    """Plans calls. ``window``: frames that may be with a client unread. ``fail``: as in ``steps``."""

    def __init__(
        self, pool: WorkerPool, settings: Settings, policy: Policy, window: int, fail: Callable[[Request], None]
    ) -> None:
        self._pool, self._settings, self._policy = pool, settings, policy
        self._window, self._fail = window, fail

    def plan(self, worker: VocoderWorker, now: float) -> PlannedCall | None:
        """Plan the worker's next call; None while no stream has a chunk ready."""
        streams = list(worker.streams.values())
        ready: list[Stream] = []
        for stream in streams:
            try:
                if self._ready(stream, now):
                    ready.append(stream)
            except Exception:
                self._fail(stream.request)
        if not ready:
            return None
        call = _Builder(worker, self._settings, now, self._window)
        self._add(call, ready, self._settings.max_call_frames)
        due, target = call.frames, self._policy.fill_target(worker)
        if call.frames < target:
            # Other streams follow at the price of their frames; a call of their own would cost its base as well.
            chosen = {stream.request.id for stream in ready}
            self._add(call, [stream for stream in streams if stream.request.id not in chosen], target)
        return call.finish(due) if call.items else None

    def _add(self, call: _Builder, streams: list[Stream], most: int) -> None:
        """Add frames of these streams, the most urgent first."""
        keyed = [(self._attempt(stream, lambda stream: self._urgency(stream, call.now)), stream) for stream in streams]
        ordered = sorted(((key, stream) for key, stream in keyed if key is not None), key=lambda pair: pair[0])
        for _, stream in ordered:
            self._attempt(stream, lambda stream: call.add(stream, most))

    def _urgency(self, stream: Stream, now: float) -> tuple[float, ...]:
        return self._policy.urgency(stream.request, now)

    def _attempt(self, stream: Stream, decide: Callable[[Stream], T]) -> T | None:
        """Decide on one stream; None if its request has ended by an exception, now or a moment ago."""
        if stream.request.id not in stream.worker.streams:
            return None
        try:
            return decide(stream)
        except Exception:
            self._fail(stream.request)
            return None

    def _ready(self, stream: Stream, now: float) -> bool:
        request = stream.request  # called for every stream and plan: no properties, and no lookups that may be avoided
        playback = request.playback
        sent = playback.sent
        frames = request.history.frames - sent
        if frames <= 0:
            return False
        if sent < playback.delivered:
            return True  # rebuilds the state that a lost worker had
        room = playback.read + self._window - sent
        if frames > room:  # the client leaves no room for more
            return room > 0
        if request.reason is not None or request.resting_since is not None:
            return True
        return self._policy.due(request, frames, stream.worker, self._pool.step_seconds, now)


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
        starts, codes = request.history.turn_starts_in(first, frames), request.history.codes(first, frames)
        item = DecodeItem(request.id, request.gateway, slot, first, frames, reset, playback.delivered, starts)
        self.items.append(item)
        self.codes.append(codes)
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
