"""Vocoder workers as the scheduler sees them: slots, streams, and calls in flight."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from common.messages import VocoderWorkerHello
from scheduler.requests.request import Request
from scheduler.resources.costs import HANG_FACTOR, Average, LinearCost
from scheduler.resources.slots import Lease, SlotPool

CALL_GUESS = 0.01  # seconds, until the first result
CALL_LEAD = 0.003  # seconds before the expected end of a call at which the next one is sent
SATURATED = 0.9  # share of the time taken by due frames above which a vocoder worker can hardly keep up


class Stream(NamedTuple):
    """A request's place on a vocoder worker."""

    request: Request
    worker: VocoderWorker
    lease: Lease


class CallItem(NamedTuple):
    """A stream in a call. ``end``: the first frame after those that are delivered when the call is answered."""

    stream: Stream
    end: int


class Call(NamedTuple):
    """A call in flight. ``due``: those of its ``frames`` that were due; the others only fill the call."""

    number: int
    items: list[CallItem]
    frames: int
    due: int
    sent: float


class VocoderWorker:
    """A registered vocoder worker. ``attached``: gateways that can receive its sound."""

    def __init__(self, incarnation: str, registration: int, hello: VocoderWorkerHello) -> None:
        self.incarnation = incarnation
        self.registration = registration
        self.name = hello.name
        self.leaving = False
        self.slots = SlotPool(hello.slots)
        self.streams: dict[str, Stream] = {}  # by request, in order of admission
        self.attached: set[str] = set()
        self.unsent = 0  # frames of all its streams that no call has yet
        self.in_flight: deque[Call] = deque()
        self.calls = 0
        self.answered = 0.0  # time of the newest result
        self.call_seconds = Average(CALL_GUESS)
        self.call_cost = LinearCost([CALL_GUESS, 0.0])  # per frame
        self.due_share = Average(0.0)  # share of the time between results taken by frames that were due
        self.clip: tuple[str, str] | None = None  # (gateway, request) of the clip that it encodes

    def admit(self, request: Request) -> Stream:
        """Begin a stream."""
        stream = Stream(request, self, self.slots.lease())
        self.streams[request.id] = stream
        self.unsent += request.unsent
        return stream

    def release(self, stream: Stream) -> None:
        """End a stream and release its slot."""
        del self.streams[stream.request.id]
        self.slots.release(stream.lease)
        try:
            self.unsent -= stream.request.unsent
        except Exception:  # the request ends since something is wrong with it: count the others
            self.unsent = sum(other.request.unsent for other in self.streams.values())

    def held(self) -> dict[str, int]:
        """Resources held by requests, by kind."""
        return {"slots": self.slots.size - self.slots.free, "unsent frames": self.unsent}

    def hangs(self, timeout: float, now: float) -> bool:
        """Return whether the call at work takes far longer than it should, and at least ``timeout`` seconds."""
        if not self.in_flight:
            return False
        return now - self.began > max(timeout, HANG_FACTOR * self.call_cost.predict(self.in_flight[0].frames))

    def at_work(self) -> set[str]:
        """Requests that the calls in flight decode."""
        return {item.stream.request.id for call in self.in_flight for item in call.items}

    @property
    def has_suspect(self) -> bool:
        """Return whether it serves a request that is suspected of killing its workers."""
        return any(stream.request.kills_vocoder for stream in self.streams.values())

    @property
    def idle(self) -> bool:
        return not self.streams and not self.in_flight and self.clip is None

    @property
    def began(self) -> float:
        """Time at which the call at work began: it was sent, and the one before it answered."""
        return max(self.in_flight[0].sent, self.answered)

    def next_call_at(self, look_ahead: bool) -> float:
        """The earliest time to send the next call: just before the one at work ends, so that the device need not wait.

        Infinite if only the next result can allow another call.
        """
        if not self.in_flight:
            return -math.inf
        if len(self.in_flight) > 1 or not look_ahead:
            return math.inf
        return self.began + self.call_cost.predict(self.in_flight[0].frames) - CALL_LEAD

    @property
    def saturated(self) -> bool:
        """Return whether it can hardly keep up."""
        return self.due_share.value > SATURATED
