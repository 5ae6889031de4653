"""The workers as the scheduler sees them: what each holds, and what is on its way to each."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple, TypeAlias

from common.messages import ArWorkerHello, VocoderWorkerHello
from scheduler.planning.costs import LinearCost
from scheduler.requests.request import Request
from scheduler.resources.pages import PagePool
from scheduler.resources.slots import SlotPool

EWMA_WEIGHT = 0.1
STEP_GUESS = 0.01  # seconds, until the first answer
CALL_GUESS = 0.01
LEAST_AHEAD = 0.004  # seconds of work that a device should have while the host sees to the step before
CALL_LEAD = 0.003  # seconds before the end of a call at which the next one is sent
SATURATED = 0.9  # share of the time taken by what is due, above which a vocoder worker can hardly keep up


class Average:
    """An exponentially weighted mean of durations, in seconds."""

    def __init__(self, first_guess: float) -> None:
        self.value = first_guess
        self._seen = False

    def add(self, seconds: float) -> None:
        self.value = seconds if not self._seen else self.value + EWMA_WEIGHT * (seconds - self.value)
        self._seen = True


Row: TypeAlias = tuple[Request, int, int]
"""A row of a step: the request, its epoch, and the first position behind those written when it is answered."""


class Step(NamedTuple):
    """A step in flight. ``prompts``: the requests with a span of prompt in it; ``sent``: when."""

    number: int
    rows: list[Row]
    prefill_tokens: int
    prompts: list[Request]
    sent: float


class ArWorker:
    """An AR worker, registered."""

    def __init__(self, incarnation: str, hello: ArWorkerHello, frame_seconds: float) -> None:
        self.incarnation = incarnation
        self.name = hello.name
        self.page_size = hello.page_size
        self.context = min(hello.context, hello.pages * hello.page_size)
        self.slots = SlotPool(hello.slots)
        self.pages = PagePool(hello.pages)
        self.requests: dict[str, Request] = {}  # by admission
        self.prompts: dict[str, Request] = {}  # of these, those with a prompt to prefill
        self.decoders: dict[str, Request] = {}  # and those of which another frame may be asked
        self.in_flight: deque[Step] = deque()
        self.steps = 0
        self.released: list[int] = []  # slots the worker has not yet been told of
        self.answered = 0.0  # when the newest answer came
        self.step_seconds = Average(STEP_GUESS)
        self.step_cost = LinearCost([STEP_GUESS, 0.0, 0.0])  # per row and prompt position
        self.between_ends = Average(0.0)  # seconds from one freed slot to the next, while others wait
        self.last_end: float | None = None
        self.semantic_begin = hello.semantic_begin
        self.filling = True  # static batching: the batch is still being put together
        self.frame_seconds = frame_seconds
        self.leaving = False

    def take(self, request: Request) -> None:
        """A request is admitted, its pages promised; its prompt is to be prefilled."""
        request.ar, request.lease = self, self.slots.lend()
        request.slot = request.lease.slot
        self.requests[request.id] = self.prompts[request.id] = request

    def give_up(self, request: Request) -> None:
        """A request gives slot and pages back; a step in flight may still answer for it."""
        for group in (self.requests, self.prompts, self.decoders):
            group.pop(request.id, None)
        assert request.lease is not None, "it was taken"
        self.slots.give_back(request.lease)
        if request.assigned:
            self.released.append(request.slot)
        last_step = self.in_flight[-1].number if self.in_flight else -1
        self.pages.release(request.pages[len(request.shared) :], request.shared, request.reserved, last_step)
        if not self.in_flight:
            self.pages.settle(self.steps)
        request.ar = request.lease = None

    def held(self) -> dict[str, int]:
        """What requests hold, by kind."""
        pages, slots = self.pages, self.slots
        return {"active pages": pages.active, "reserved pages": pages.reserved, "slots": slots.size - slots.free}

    def end_turn(self, request: Request) -> None:
        """A turn of the request has ended: its next prompt is to be prefilled, or it rests."""
        self.decoders.pop(request.id, None)
        if request.resting_since is None:
            self.prompts[request.id] = request

    @property
    def ahead(self) -> int:
        """Steps to send ahead of the answer to the one at work: another is worth it where steps are short."""
        return 1 if self.step_seconds.value >= LEAST_AHEAD else 2

    @property
    def idle(self) -> bool:
        return not self.requests and not self.in_flight

    def pages_for(self, positions: int) -> int:
        return -(-positions // self.page_size)


class Call(NamedTuple):
    """A vocoder call in flight: the requests, and up to which frame each is spoken when it is answered. ``due``: frames
    of it that were; the others fill it up."""

    number: int
    spoken: list[tuple[Request, int]]
    frames: int
    due: int
    sent: float


class VocoderWorker:
    """A vocoder worker, registered. ``attached``: the gateways that can receive its sound."""

    def __init__(self, incarnation: str, hello: VocoderWorkerHello) -> None:
        self.incarnation = incarnation
        self.name = hello.name
        self.audio_endpoint = hello.audio_endpoint
        self.slots = SlotPool(hello.slots)
        self.requests: dict[str, Request] = {}
        self.attached: set[str] = set()
        self.unspoken = 0  # frames of all its requests that were not yet in a call
        self.in_flight: deque[Call] = deque()
        self.calls = 0
        self.call_seconds = Average(CALL_GUESS)
        self.call_cost = LinearCost([CALL_GUESS, 0.0])  # per frame
        self.due_share = Average(0.0)  # of the time from one answer to the next, taken by the frames that were due
        self.answered = 0.0  # when the newest answer came
        self.encoding: tuple[str, str] | None = None  # (gateway, request) of the clip being encoded
        self.leaving = False

    def take(self, request: Request) -> None:
        """A request is admitted."""
        request.vocoder, request.vocoder_lease = self, self.slots.lend()
        self.requests[request.id] = request
        self.unspoken += request.unspoken

    def give_up(self, request: Request) -> None:
        """A request wants no more sound, and gives its slot back."""
        del self.requests[request.id]
        self.unspoken -= request.unspoken
        assert request.vocoder_lease is not None, "it was taken"
        self.slots.give_back(request.vocoder_lease)
        request.vocoder = request.vocoder_lease = None

    def held(self) -> dict[str, int]:
        """What requests hold, by kind."""
        return {"slots": self.slots.size - self.slots.free, "unspoken frames": self.unspoken}

    @property
    def idle(self) -> bool:
        return not self.requests and not self.in_flight and self.encoding is None

    @property
    def began(self) -> float:
        """When the call at work was its turn: it was sent, and the one before answered."""
        return max(self.in_flight[0].sent, self.answered)

    def next_call_at(self, look_ahead: bool) -> float:
        """From when on the next call may be sent: when the one at work is about to end, so that the device need not
        wait for it, or else (infinite) when an answer has come."""
        if not self.in_flight:
            return -math.inf
        if len(self.in_flight) > 1 or not look_ahead:
            return math.inf
        return self.began + self.call_cost.predict(self.in_flight[0].frames) - CALL_LEAD

    @property
    def saturated(self) -> bool:
        """Whether it can hardly keep up."""
        return self.due_share.value > SATURATED
