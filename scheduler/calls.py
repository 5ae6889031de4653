"""Planning a vocoder call: whose frames become sound now, and how many of them.

A chunk should be ready before the sound ahead of it has been played. The first is the smallest that lasts until the
second can be there; later ones grow with the listener's reserve, since a larger chunk costs less per frame.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import Array, DecodeItem, DecodePlan
from scheduler.request import Request
from scheduler.workers import Call, VocoderWorker

SAFETY = 1.5  # how much longer than on average a step or a call may take
RESERVE_SHARE = 0.5  # of the listener's reserve may go by while the next chunk is gathered


class PlannedCall(NamedTuple):
    plan: DecodePlan
    arrays: list[Array]  # codes int16 [frames, 10]


def first_chunk(step_seconds: float, call_seconds: float, frame_seconds: float, most: int) -> int:
    """Frames of the first chunk: n frames of sound must last while the next n are generated and vocoded.

    n * frame >= n * step + call, with a margin; ``most`` when generation is no faster than the listener.
    """
    gain = frame_seconds - SAFETY * step_seconds
    if gain <= 0:
        return most
    return min(most, max(1, math.ceil(SAFETY * call_seconds / gain)))


def plan_call(worker: VocoderWorker, settings: Settings, now: float, frame_seconds: float) -> PlannedCall | None:
    """The worker's next call, or None while one is under way or nobody has a chunk ready."""
    if worker.call is not None:
        return None
    ready = [request for request in worker.requests.values() if _ready(request, worker, settings, now, frame_seconds)]
    if not ready:
        return None
    # Whose sound runs out first, first; then those who wait for a whole file, in order of arrival.
    ready.sort(key=lambda request: (not request.streaming, _reserve(request, now), request.arrived))
    items, codes, spoken, room = [], [], [], settings.max_call_frames
    for request in ready:
        frames = min(_speakable(request, settings, frame_seconds), settings.max_chunk, room)
        if frames == 0:
            break
        assert request.vocoder_lease is not None, "an admitted stream has a vocoder slot"
        slot = request.vocoder_lease.slot
        items.append(DecodeItem(request.id, request.gateway, slot, request.handed, frames, request.handed == 0))
        codes.append(request.codes(request.handed, frames))
        request.handed += frames
        spoken.append((request, request.handed))
        room -= frames
    worker.call = Call(worker.calls, spoken, settings.max_call_frames - room)
    worker.calls += 1
    return PlannedCall(DecodePlan(worker.call.number, items), [np.concatenate(codes)])


def _speakable(request: Request, settings: Settings, frame_seconds: float) -> int:
    """Frames that may go to the vocoder, as far ahead of the client's reading as is allowed."""
    window = max(1, round(settings.unread_seconds / frame_seconds))
    return min(request.unspoken, request.read + window - request.handed)


def _reserve(request: Request, now: float) -> float:
    """Seconds of delivered sound the listener has left."""
    return -math.inf if request.play_end is None else request.play_end - now


def _ready(request: Request, worker: VocoderWorker, settings: Settings, now: float, frame_seconds: float) -> bool:
    frames = _speakable(request, settings, frame_seconds)
    if frames <= 0:
        return False
    if request.generated or frames < request.unspoken:  # the end, or all that the client leaves room for
        return True
    return frames >= _chunk(request, worker, settings, now, frame_seconds)


def _chunk(request: Request, worker: VocoderWorker, settings: Settings, now: float, frame_seconds: float) -> int:
    """Frames to gather before the next call for this stream."""
    if not request.streaming:
        return settings.max_chunk
    if request.play_end is None:
        step_seconds = request.ar.step_seconds.value if request.ar is not None else 0.0
        return first_chunk(step_seconds, worker.call_seconds.value, frame_seconds, settings.max_first_chunk)
    reserve = RESERVE_SHARE * _reserve(request, now) / frame_seconds
    return min(settings.max_chunk, max(1, int(reserve)))
