"""Planning a vocoder call: whose frames become sound now, and how many of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import Array, DecodeItem, DecodePlan
from scheduler.planning.policy import Policy
from scheduler.requests.request import Request
from scheduler.resources.workers import Call, VocoderWorker


class PlannedCall(NamedTuple):
    plan: DecodePlan
    arrays: list[Array]  # codes int16 [frames, 10]


def plan_call(worker: VocoderWorker, settings: Settings, policy: Policy, now: float, window: int) -> PlannedCall | None:
    """The worker's next call, or None while nobody has a chunk ready.

    ``window``: frames that may be with a client unread.
    """
    ready = [request for request in worker.requests.values() if _ready(request, worker, policy, now, window)]
    if not ready:
        return None
    ready.sort(key=lambda request: policy.urgency(request, now))
    call = _Builder(worker, settings, now, window)
    for request in ready:
        call.add(request, settings.max_call_frames)
    due, filled = call.frames, policy.filled(worker)
    if call.frames < filled:
        # Others follow at the price of their frames; a call of their own would cost its base as well.
        chosen = set(ready)
        others = [request for request in worker.requests.values() if request not in chosen]
        for request in sorted(others, key=lambda request: policy.urgency(request, now)):
            call.add(request, filled)
    return call.finish(due)


class _Builder:
    """Collects one call."""

    def __init__(self, worker: VocoderWorker, settings: Settings, now: float, window: int) -> None:
        self.worker, self.settings, self.now, self.window = worker, settings, now, window
        self.items: list[DecodeItem] = []
        self.codes: list[Array] = []
        self.spoken: list[tuple[Request, int]] = []
        self.frames = 0

    def add(self, request: Request, most: int) -> None:
        """Put a stream's next frames into the call, as far as its client's reading and ``most`` frames in all allow."""
        room = min(self.window + request.read - request.handed, most - self.frames)
        frames = min(request.unspoken, self.settings.max_chunk, room)
        if frames <= 0:
            return
        assert request.vocoder_lease is not None, "an admitted stream has a vocoder slot"
        first, slot = request.handed, request.vocoder_lease.slot
        reset, heard = first == 0, request.delivered
        self.items.append(DecodeItem(request.id, request.gateway, slot, first, frames, reset, heard))
        self.codes.append(request.codes(first, frames))
        request.handed += frames
        request.asked_sound = self.now
        self.worker.unspoken -= frames
        self.spoken.append((request, request.handed))
        self.frames += frames

    def finish(self, due: int) -> PlannedCall:
        worker = self.worker
        call = Call(worker.calls, self.spoken, self.frames, due, self.now)
        worker.in_flight.append(call)
        worker.calls += 1
        return PlannedCall(DecodePlan(call.number, self.items), [np.concatenate(self.codes)])


def _ready(request: Request, worker: VocoderWorker, policy: Policy, now: float, window: int) -> bool:
    frames = request.frames - request.handed
    if frames <= 0:
        return False
    if request.handed < request.delivered:
        return True  # the state of a lost worker is made anew
    room = request.read + window - request.handed
    if frames > room:  # all that the client leaves room for
        return room > 0
    ended = request.reason is not None or request.resting_since is not None
    return ended or policy.due(request, frames, worker, now)
