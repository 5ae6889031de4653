"""The scheduler's heart: it takes events and returns what is to be sent. No sockets, no clock, no torch.

Time is a number of seconds handed in with each event. The same class serves real traffic and runs in tests and
simulations. An AR worker has at most two steps in flight (one of look-ahead), or one without look-ahead: the
synchronous twin of the loop, which decides by the same code.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import (
    AnyBody,
    Array,
    ArWorkerHello,
    Codes,
    DecodeDone,
    EncodeAudio,
    Encoded,
    Ended,
    Failure,
    FinishReason,
    FrameSpan,
    Shutdown,
    StepDone,
    Submit,
    VocoderWorkerHello,
)
from scheduler.calls import plan_call
from scheduler.observer import Observer
from scheduler.request import Request
from scheduler.steps import plan_step
from scheduler.workers import ArWorker, Row, VocoderWorker

log = logging.getLogger(__name__)

LOOK_AHEAD_POSITIONS = 1  # a step sent before the end was known may write one position more


class ProtocolError(Exception):
    """A worker answered what it was not asked."""


class Outgoing(NamedTuple):
    """A message to send: ``peer`` is an incarnation."""

    peer: str
    body: AnyBody
    arrays: list[Array]


class Scheduler:
    """See the module. ``frame_seconds``: length of a frame of sound."""

    def __init__(self, settings: Settings, frame_seconds: float, observer: Observer | None = None) -> None:
        self.settings = settings
        self.frame_seconds = frame_seconds
        self.observer = observer or Observer()
        self.waiting: dict[str, Request] = {}  # by arrival
        self.requests: dict[str, Request] = {}  # admitted, until the last sample
        self.ar_workers: dict[str, ArWorker] = {}
        self.vocoders: dict[str, VocoderWorker] = {}
        self.encodes: deque[tuple[str, str, Array]] = deque()  # (gateway, request, samples)
        self.draining = False
        self._out: list[Outgoing] = []

    # Workers and gateways come and go --------------------------------------------------------------------------------

    def ar_joined(self, incarnation: str, hello: ArWorkerHello) -> None:
        self.ar_workers[incarnation] = ArWorker(incarnation, hello)

    def vocoder_joined(self, incarnation: str, hello: VocoderWorkerHello) -> None:
        self.vocoders[incarnation] = VocoderWorker(incarnation, hello)

    def attached(self, gateway: str, vocoder: str) -> None:
        """A gateway can receive sound from a vocoder worker."""
        if vocoder in self.vocoders:
            self.vocoders[vocoder].attached.add(gateway)

    def leaving(self, incarnation: str) -> None:
        """A worker wants to stop: it gets nothing new, and is let go when it has nothing left."""
        worker = self.ar_workers.get(incarnation) or self.vocoders.get(incarnation)
        if worker is not None:
            worker.leaving = True

    def drain(self) -> None:
        """Take nothing new; when all is done, every worker is let go."""
        self.draining = True

    def peer_lost(self, incarnation: str) -> None:
        """A process has gone, whichever it was. Requests it worked on end with an error; a gateway's are cancelled."""
        worker = self.ar_workers.pop(incarnation, None) or self.vocoders.pop(incarnation, None)
        if worker is None:
            self._gateway_lost(incarnation)
            return
        failure = Failure(503, "worker_lost", f"the {worker.name} working on this request was lost", retry_after=1)
        for request in list(worker.requests.values()):
            self._abort(request, "error", failure)
        if isinstance(worker, VocoderWorker) and worker.encoding is not None:
            self._send(worker.encoding[0], Encoded(worker.encoding[1], failure))
        self._refuse_unservable(failure)

    def _gateway_lost(self, gateway: str) -> None:
        for request in [*self.waiting.values(), *self.requests.values()]:
            if request.gateway == gateway:
                self._abort(request, "cancelled", None)
        self.encodes = deque(job for job in self.encodes if job[0] != gateway)
        for vocoder in self.vocoders.values():
            vocoder.attached.discard(gateway)

    def _refuse_unservable(self, failure: Failure) -> None:
        """End what waits for a kind of worker of which none is left."""
        for request in list(self.waiting.values()):
            if not self.ar_workers or (request.audio and not self.vocoders):
                self._abort(request, "error", failure)
        while self.encodes and not self.vocoders:
            gateway, job, _ = self.encodes.popleft()
            self._send(gateway, Encoded(job, failure))

    # What gateways ask -----------------------------------------------------------------------------------------------

    def submit(self, gateway: str, body: Submit, prompt: Array, now: float) -> None:
        """A request arrives. ``prompt``: int32 [11, positions]."""
        failure = self._refusal(gateway, body, prompt)
        if failure is not None:
            self.observer.ended("rejected")
            self._send(gateway, Ended(body.request, "rejected", 0, failure))
            return
        self.waiting[body.request] = Request(gateway, body, prompt, now)

    def _refusal(self, gateway: str, body: Submit, prompt: Array) -> Failure | None:
        if body.request in self.waiting or body.request in self.requests:
            return Failure(409, "duplicate_request", "a request of this id is under way")
        if self.draining:
            return Failure(503, "draining", "the server is shutting down", retry_after=5)
        workers = [worker for worker in self.ar_workers.values() if not worker.leaving]
        if not workers or (body.output == "audio" and not self._usable_vocoders(gateway)):
            return Failure(503, "not_ready", "a worker is starting or being restarted", retry_after=2)
        positions, context = prompt.shape[1], max(worker.context for worker in workers)
        if positions + len(body.turns) + LOOK_AHEAD_POSITIONS > context:
            return Failure(
                400, "context_length_exceeded", f"text and references need {positions} of {context} positions"
            )
        if len(self.waiting) >= self.settings.max_waiting:
            return Failure(429, "queue_full", f"{len(self.waiting)} requests wait already", retry_after=2)
        return None

    def cancel(self, request_id: str, reason: FinishReason) -> None:
        """The client has gone, or its gateway has given up on it. Settles at the edge of the steps in flight."""
        request = self.waiting.get(request_id) or self.requests.get(request_id)
        if request is not None:
            self._abort(request, reason, None)

    def credit(self, request_id: str, frame: int) -> None:
        """The client has read up to ``frame``. Cumulative."""
        request = self.requests.get(request_id)
        if request is not None:
            request.read = min(max(request.read, frame), request.delivered)

    def encode(self, gateway: str, request_id: str, samples: Array) -> None:
        """Encode reference audio; answered by :class:`Encoded`."""
        if self.draining or not self.vocoders:
            failure = Failure(503, "not_ready", "no vocoder worker is ready", retry_after=2)
            self._send(gateway, Encoded(request_id, failure))
        elif len(self.encodes) >= self.settings.max_encodes:
            failure = Failure(429, "queue_full", f"{len(self.encodes)} clips wait to be encoded", retry_after=2)
            self._send(gateway, Encoded(request_id, failure))
        else:
            self.encodes.append((gateway, request_id, samples))

    # What workers answer ---------------------------------------------------------------------------------------------

    def step_done(self, incarnation: str, body: StepDone, codes: Array, ended: Array) -> None:
        """A step was answered. ``codes``: int16 [n, 10]; ``ended``: uint8 [n].

        Raises:
            ProtocolError: not the step that was due, or not its number of rows.
        """
        worker = self.ar_workers[incarnation]
        if not worker.in_flight or worker.in_flight[0].number != body.step:
            raise ProtocolError(f"step {body.step} was not due")
        step = worker.in_flight.popleft()
        if codes.shape != (len(step.rows), 10) or ended.shape != (len(step.rows),):
            raise ProtocolError(f"step {body.step} has {len(step.rows)} rows, not codes {codes.shape}")
        worker.step_seconds.add(body.duration)
        self.observer.stepped(body.duration, len(step.rows), step.prefill_tokens)
        worker.pages.settle(step.number)
        received = [row for row, code, end in zip(step.rows, codes, ended, strict=True) if self._settle(row, code, end)]
        self._forward_codes([row.request for row in received if not row.request.audio])
        for row in received:
            if row.request.frames == row.request.max_frames and not row.request.generated:
                self._finish(row.request, "length")

    def _settle(self, row: Row, codes: Array, ended: np.uint8) -> bool:
        """Take one row of a step; whether it brought a frame."""
        request = row.request
        if request.generated or row.epoch != request.epoch:
            return False  # asked for before the end of the request, or of its turn, was known
        if not ended:
            request.append(codes)
            return True
        if not request.next_turn(row.position):
            self._finish(request, "stop")
        return False

    def _forward_codes(self, requests: list[Request]) -> None:
        for gateway in {request.gateway for request in requests}:
            mine = [request for request in requests if request.gateway == gateway]
            spans = [FrameSpan(request.id, request.frames - 1, 1) for request in mine]
            self._send(
                gateway, Codes(spans), [np.concatenate([request.codes(request.frames - 1, 1) for request in mine])]
            )

    def decode_done(self, incarnation: str, body: DecodeDone, now: float) -> None:
        """A vocoder call was answered: its sound is with the gateways.

        Raises:
            ProtocolError: not the call that was due.
        """
        worker = self.vocoders[incarnation]
        call = worker.call
        if call is None or call.number != body.call:
            raise ProtocolError(f"call {body.call} was not due")
        worker.call = None
        worker.call_seconds.add(body.duration)
        self.observer.called(body.duration, len(call.spoken), call.frames)
        for gateway in body.unreachable:
            self._gateway_lost(gateway)
        for request, frame in call.spoken:
            if request.id not in self.requests:
                continue
            start = now if request.play_end is None else max(request.play_end, now)
            request.play_end = start + (frame - request.delivered) * self.frame_seconds
            request.delivered = frame
            if request.generated and request.delivered == request.frames:
                self._retire(request)

    def encode_done(self, incarnation: str, body: Encoded, arrays: list[Array]) -> None:
        """A vocoder worker has encoded its clip, or could not."""
        worker = self.vocoders[incarnation]
        if worker.encoding is None or worker.encoding[1] != body.request:
            raise ProtocolError(f"clip {body.request} was not being encoded")
        self._send(worker.encoding[0], body, arrays)
        worker.encoding = None

    # Plans -----------------------------------------------------------------------------------------------------------

    def plan(self, now: float) -> list[Outgoing]:
        """Decide all that can be decided now, and return what is to be sent, in order."""
        self._expire(now)
        self._admit(now)
        for ar_worker in self.ar_workers.values():
            while len(ar_worker.in_flight) < 1 + self.settings.look_ahead:
                step = plan_step(ar_worker, self.settings, now, self.frame_seconds)
                if step is None:
                    break
                self._send(ar_worker.incarnation, step.plan, step.arrays)
        for vocoder in self.vocoders.values():
            call = plan_call(vocoder, self.settings, now, self.frame_seconds)
            if call is not None:
                self._send(vocoder.incarnation, call.plan, call.arrays)
            self._start_encode(vocoder)
        self._let_go()
        out, self._out = self._out, []
        return out

    def wake_at(self) -> float | None:
        """When to plan again even if nothing happens."""
        return min(
            (request.deadline for request in self.waiting.values() if request.deadline is not None), default=None
        )

    def idle(self) -> bool:
        """Whether nothing is under way."""
        workers: list[ArWorker | VocoderWorker] = [*self.ar_workers.values(), *self.vocoders.values()]
        return not (self.waiting or self.requests or self.encodes) and all(worker.idle for worker in workers)

    def _expire(self, now: float) -> None:
        late = [
            request for request in self.waiting.values() if request.deadline is not None and now >= request.deadline
        ]
        for request in late:
            failure = Failure(503, "deadline_exceeded", "no place became free in time", retry_after=2)
            self._abort(request, "timeout", failure)

    def _admit(self, now: float) -> None:
        """Admit from the head of the queue, as long as the worst case of the next one fits."""
        for request in list(self.waiting.values()):
            if not self._place(request):
                break
            del self.waiting[request.id]
            self.requests[request.id] = request
            self.observer.admitted(now - request.arrived)

    def _place(self, request: Request) -> bool:
        """Find an AR slot, pages for the worst case and, for sound, a vocoder slot; all or nothing."""
        vocoder = None
        if request.audio:
            usable = [worker for worker in self._usable_vocoders(request.gateway) if worker.slots.free]
            vocoder = max(usable, key=lambda worker: worker.slots.free, default=None)
            if vocoder is None:
                return False
        candidates = [worker for worker in self.ar_workers.values() if worker.slots.free and not worker.leaving]
        for ar_worker in sorted(candidates, key=lambda worker: -worker.slots.free):
            room = ar_worker.context - request.prompt_tokens - len(request.turns) - LOOK_AHEAD_POSITIONS
            most_frames = min(request.max_frames, room)
            pages = ar_worker.pages_for(request.prompt_tokens + most_frames + LOOK_AHEAD_POSITIONS)
            if most_frames > 0 and ar_worker.pages.reserve(pages):
                request.max_frames, request.reserved = most_frames, pages
                request.ar, request.lease = ar_worker, ar_worker.slots.lend()
                ar_worker.requests[request.id] = request
                if vocoder is not None:
                    request.vocoder, request.vocoder_lease = vocoder, vocoder.slots.lend()
                    vocoder.requests[request.id] = request
                return True
        return False

    def _usable_vocoders(self, gateway: str) -> list[VocoderWorker]:
        return [worker for worker in self.vocoders.values() if gateway in worker.attached and not worker.leaving]

    def _start_encode(self, vocoder: VocoderWorker) -> None:
        if self.encodes and vocoder.encoding is None and not vocoder.leaving:
            gateway, request_id, samples = self.encodes.popleft()
            vocoder.encoding = (gateway, request_id)
            self._send(vocoder.incarnation, EncodeAudio(request_id), [samples])

    def _let_go(self) -> None:
        """Let go of workers that want to leave and have nothing left to do."""
        all_done = self.draining and self.idle()
        workers: dict[str, ArWorker | VocoderWorker] = {**self.ar_workers, **self.vocoders}
        for incarnation, worker in workers.items():
            if all_done or (worker.leaving and worker.idle):
                self.ar_workers.pop(incarnation, None)
                self.vocoders.pop(incarnation, None)
                self._send(incarnation, Shutdown())

    # Ends ------------------------------------------------------------------------------------------------------------

    def _finish(self, request: Request, reason: FinishReason) -> None:
        """All frames are here. Sound goes on until the last one is delivered."""
        self._leave_ar(request)
        request.reason = reason
        failure = None
        if request.frames == 0:
            failure = Failure(500, "no_audio", "the model ended before the first frame")
            request.reason = "error"
        self._send(request.gateway, Ended(request.id, request.reason, request.frames, failure))
        if not request.audio or request.delivered == request.frames:
            self._retire(request)

    def _abort(self, request: Request, reason: FinishReason, failure: Failure | None) -> None:
        """End a request where it stands. Its gateway is told when there is a failure to tell."""
        self._leave_ar(request)
        request.reason = reason
        if failure is not None:
            self._send(request.gateway, Ended(request.id, reason, request.frames, failure))
        self._retire(request)

    def _retire(self, request: Request) -> None:
        """Forget a request: nothing more will be heard of it."""
        self.waiting.pop(request.id, None)
        self.requests.pop(request.id, None)
        if request.vocoder is not None and request.vocoder_lease is not None:
            request.vocoder.requests.pop(request.id, None)
            request.vocoder.slots.give_back(request.vocoder_lease)
            request.vocoder = request.vocoder_lease = None
        assert request.reason is not None, "a request ends for a reason"
        self.observer.ended(request.reason)

    def _leave_ar(self, request: Request) -> None:
        """Give slot and pages back; a step in flight may still answer for them."""
        worker = request.ar
        if worker is None or request.lease is None:
            return
        del worker.requests[request.id]
        worker.slots.give_back(request.lease)
        if request.assigned:
            worker.released.append(request.lease.slot)
        last_step = worker.in_flight[-1].number if worker.in_flight else -1
        worker.pages.release(request.pages, request.reserved, last_step)
        if not worker.in_flight:
            worker.pages.settle(worker.steps)
        request.ar = request.lease = None

    def _send(self, peer: str, body: AnyBody, arrays: list[Array] | None = None) -> None:
        self._out.append(Outgoing(peer, body, arrays or []))
