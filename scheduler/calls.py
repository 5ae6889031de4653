"""Planning a vocoder call: whose frames become sound now, and how many of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import Array, DecodeItem, DecodePlan
from scheduler.policy import Policy
from scheduler.request import Request
from scheduler.workers import Call, VocoderWorker


class PlannedCall(NamedTuple):
    plan: DecodePlan
    arrays: list[Array]  # codes int16 [frames, 10]


def plan_call(worker: VocoderWorker, settings: Settings, policy: Policy, now: float, window: int) -> PlannedCall | None:
    """The worker's next call, or None while one is under way or nobody has a chunk ready.

    ``window``: frames that may be with a client unread.
    """
    if worker.call is not None:
        return None
    ready = [request for request in worker.requests.values() if _ready(request, worker, policy, now, window)]
    if not ready:
        return None
    ready.sort(key=lambda request: policy.urgency(request, now))
    items, codes, spoken, room = [], [], [], settings.max_call_frames
    for request in ready:
        unread = request.handed - request.read
        frames = min(request.unspoken, window - unread, settings.max_chunk, room)
        if frames == 0:
            break
        assert request.vocoder_lease is not None, "an admitted stream has a vocoder slot"
        slot = request.vocoder_lease.slot
        items.append(DecodeItem(request.id, request.gateway, slot, request.handed, frames, request.handed == 0))
        codes.append(request.codes(request.handed, frames))
        request.handed += frames
        worker.unspoken -= frames
        request.asked_sound = now
        spoken.append((request, request.handed))
        room -= frames
    worker.call = Call(worker.calls, spoken, settings.max_call_frames - room)
    worker.calls += 1
    return PlannedCall(DecodePlan(worker.call.number, items), [np.concatenate(codes)])


def _ready(request: Request, worker: VocoderWorker, policy: Policy, now: float, window: int) -> bool:
    frames = request.frames - request.handed
    if frames <= 0:
        return False
    room = request.read + window - request.handed
    if frames > room:  # all that the client leaves room for
        return room > 0
    ended = request.reason is not None or request.resting_since is not None
    return ended or policy.due(request, frames, worker, now)
