"""The scheduler's heart: it takes events and returns what is to be sent. No sockets, no clock, no torch.

Time is a number of seconds handed in with each event. The same class serves real traffic and runs in tests and
simulations. An AR worker has at most two steps in flight (one of look-ahead), or one without look-ahead: the
synchronous twin of the loop, which decides by the same code.
"""

from __future__ import annotations

import logging
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
    Extend,
    Failure,
    FinishReason,
    FrameSpan,
    Shutdown,
    StepDone,
    Submit,
    Vocode,
    VocoderWorkerHello,
)
from scheduler.admission import refusal
from scheduler.calls import plan_call
from scheduler.encodes import Clip, Encodes
from scheduler.journal import Journal
from scheduler.observer import Observer
from scheduler.placement import Placement
from scheduler.policy import make_policy
from scheduler.request import Request
from scheduler.steps import plan_step
from scheduler.waiting import WaitingQueue
from scheduler.workers import ArWorker, VocoderWorker

log = logging.getLogger(__name__)


class ProtocolError(Exception):
    """A worker answered what it was not asked."""


class Outgoing(NamedTuple):
    """A message to send: ``peer`` is an incarnation."""

    peer: str
    body: AnyBody
    arrays: list[Array]


class Scheduler:
    """See the module. ``frame_seconds``: length of a frame of sound."""

    def __init__(
        self,
        settings: Settings,
        frame_seconds: float,
        observer: Observer | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.settings = settings
        self.frame_seconds = frame_seconds
        self.observer = observer or Observer()
        self.journal = journal or Journal()
        self.policy = make_policy(settings, frame_seconds)
        self.placement = Placement(self.policy, settings.prefix_cache)
        self.window = max(1, round(settings.unread_seconds / frame_seconds))
        self.waiting = WaitingQueue()
        self.requests: dict[str, Request] = {}  # admitted, until the last sample
        self.ar_workers: dict[str, ArWorker] = {}
        self.vocoders: dict[str, VocoderWorker] = {}
        self.encodes = Encodes(settings.max_encodes)
        self.draining = False
        self._out: list[Outgoing] = []
        self._resting: dict[str, Request] = {}  # admitted, all turns so far spoken, more may come
        self._start_at: float | None = None  # when a step that is held back is due

    # Workers and gateways come and go --------------------------------------------------------------------------------

    def ar_joined(self, incarnation: str, hello: ArWorkerHello) -> None:
        self.ar_workers[incarnation] = ArWorker(incarnation, hello, self.frame_seconds)

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
        for request in [*self.waiting, *self.requests.values()]:
            if request.gateway == gateway:
                self._abort(request, "cancelled", None)
        self.encodes.forget(gateway)
        for vocoder in self.vocoders.values():
            vocoder.attached.discard(gateway)

    def _refuse_unservable(self, failure: Failure) -> None:
        """End what waits for a kind of worker of which none is left."""
        for request in self.waiting:
            if not self.ar_workers or (request.audio and not self.vocoders):
                self._abort(request, "error", failure)
        while self.encodes and not self.vocoders:
            clip = self.encodes.next()
            self._send(clip.gateway, Encoded(clip.request, failure))

    # What gateways ask -----------------------------------------------------------------------------------------------

    def submit(self, gateway: str, body: Submit, prompt: Array, now: float) -> None:
        """A request arrives. ``prompt``: int32 [11, positions]."""
        self._queue(Request(gateway, body, prompt, now), now)

    def vocode(self, gateway: str, body: Vocode, codes: Array, now: float) -> None:
        """Codes arrive that want to be sound. ``codes``: int16 [frames, 10]."""
        self._queue(Request.of_codes(gateway, body, codes, now), now)

    def _queue(self, request: Request, now: float) -> None:
        failure = self._refusal(request)
        if failure is not None:
            self.observer.ended("rejected")
            self._send(request.gateway, Ended(request.id, "rejected", 0, failure))
            return
        self.waiting.add(request)
        self.journal.queued(request)
        self._admit(now)  # at once, so that the queue holds only those who really wait

    def _refusal(self, request: Request) -> Failure | None:
        """Why the request is not even queued, if so."""
        if self.waiting.get(request.id) is not None or request.id in self.requests:
            return Failure(409, "duplicate_request", "a request of this id is under way")
        if self.draining:
            return Failure(503, "draining", "the server is shutting down", retry_after=5)
        ar_workers = [worker for worker in self.ar_workers.values() if not worker.leaving]
        vocoders = self._usable_vocoders(request.gateway)
        if not ar_workers or (request.audio and not vocoders):
            return Failure(503, "not_ready", "a worker is starting or being restarted", retry_after=2)
        return refusal(request, self.waiting, ar_workers, vocoders, self.settings)

    def extend(self, request_id: str, body: Extend, prompt: Array) -> None:
        """More text for an open request. ``prompt``: int32 [11, positions]."""
        request = self.waiting.get(request_id) or self.requests.get(request_id)
        if request is None or not request.open or request.generated:
            return
        if sum(turn.shape[1] for turn in request.turns) + prompt.shape[1] > request.prompt_tokens:
            failure = Failure(400, "context_length_exceeded", "more text than there was room asked for")
            self._abort(request, "error", failure)
            return
        more = request.extend(body.turns, prompt, body.last)
        if request_id in self._resting and request.resting_since is None and request.ar is not None:
            del self._resting[request_id]
            request.ar.end_turn(request)
        if not more:
            self._finish(request, "stop")

    def cancel(self, request_id: str, reason: FinishReason) -> None:
        """The client has gone, or its gateway has given up on it. Settles at the edge of the steps in flight."""
        request = self.waiting.get(request_id) or self.requests.get(request_id)
        if request is not None:
            self._abort(request, reason, None)

    def credit(self, request_id: str, frame: int) -> None:
        """The client has read up to ``frame``. Cumulative; may be known before the vocoder's own answer is."""
        request = self.requests.get(request_id)
        if request is not None:
            if frame > request.read and request.unspoken and request.delivered - request.read >= self.window:
                self.observer.stalled()
            request.read = min(max(request.read, frame), request.handed)

    def encode(self, gateway: str, request_id: str, samples: Array) -> None:
        """Encode reference audio; answered by :class:`Encoded`."""
        if self.draining or not self.vocoders:
            failure: Failure | None = Failure(503, "not_ready", "no vocoder worker is ready", retry_after=2)
        else:
            failure = self.encodes.add(Clip(gateway, request_id, samples))
        if failure is not None:
            self._send(gateway, Encoded(request_id, failure))

    # What workers answer ---------------------------------------------------------------------------------------------

    def step_done(self, incarnation: str, body: StepDone, codes: Array, ended: Array, now: float) -> None:
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
        worker.step_cost.add(body.duration, len(step.rows), step.prefill_tokens)
        self.observer.stepped(body.duration, len(step.rows), step.prefill_tokens)
        self.journal.stepped(worker, step, body.duration, now)
        worker.pages.settle(step.number)
        running = len(worker.requests)
        with_codes: list[Request] = []
        complete: list[Request] = []
        for (request, epoch, position), code, end in zip(step.rows, codes, ended.tolist(), strict=True):
            if request.reason is not None or epoch != request.epoch:
                continue  # asked for before the end of the request, or of its turn, was known
            if request.frames == 0:
                request.record.first_codes = now
                self.observer.prefilled(now - request.admitted)
                self._share_prompt(request)
            if end:
                self._end_turn(request, position, now)
                continue
            request.append(code)
            if request.vocoder is not None:
                request.vocoder.unspoken += 1
            else:
                with_codes.append(request)
            if request.frames == request.max_frames:
                complete.append(request)
        self._forward_codes(with_codes)
        for request in complete:
            self._finish(request, "length")
        self._note_ends(worker, running - len(worker.requests), now)

    def _note_ends(self, worker: ArWorker, ends: int, now: float) -> None:
        """Learn how often a place becomes free."""
        if ends == 0:
            return
        if worker.last_end is not None:
            worker.between_ends.add((now - worker.last_end) / ends)
        worker.last_end = now

    def _share_prompt(self, request: Request) -> None:
        """The first turn's prompt is settled, and may serve others."""
        if request.turn == 0 and request.ar is not None:
            request.ar.pages.share(request.shared, request.keys, request.pages)

    def _end_turn(self, request: Request, position: int, now: float) -> None:
        if not request.end_turn(position, now):
            self._finish(request, "stop")
            return
        assert request.ar is not None, "a request with turns to come has its worker"
        request.ar.end_turn(request)
        if request.resting_since is not None:
            self._resting[request.id] = request

    def _forward_codes(self, requests: list[Request]) -> None:
        for gateway in {request.gateway for request in requests}:
            mine = [request for request in requests if request.gateway == gateway]
            spans = [FrameSpan(request.id, request.frames - 1, 1) for request in mine]
            codes = np.concatenate([request.codes(request.frames - 1, 1) for request in mine])
            self._send(gateway, Codes(spans), [codes])

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
        worker.busy_share.add(min(1.0, body.duration / max(now - worker.free_since, 1e-9)))
        worker.free_since = now
        self.observer.called(body.duration, len(call.spoken), call.frames)
        self.journal.called(worker, call, body.duration, now)
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
        self._start_at = None
        for ar_worker in self.ar_workers.values():
            self._plan_steps(ar_worker, now)
        for vocoder in self.vocoders.values():
            call = plan_call(vocoder, self.settings, self.policy, now, self.window)
            if call is not None:
                self._send(vocoder.incarnation, call.plan, call.arrays)
            self._start_encode(vocoder)
        self._let_go()
        out, self._out = self._out, []
        return out

    def _plan_steps(self, worker: ArWorker, now: float) -> None:
        while len(worker.in_flight) < 1 + self.settings.look_ahead:
            start_at = self.policy.start_at(worker, list(self.vocoders.values()), now)
            if start_at > now:
                self._start_at = start_at if self._start_at is None else min(self._start_at, start_at)
                return
            step = plan_step(worker, self.settings, self.policy, now, len(self.waiting) > 0)
            if step is None:
                return
            self._send(worker.incarnation, step.plan, step.arrays)

    def wake_at(self) -> float | None:
        """When to plan again even if nothing happens."""
        times = [request.deadline for request in self.waiting if request.deadline is not None]
        times += [self._rest_ends(request) for request in self._resting.values()]
        if self._start_at is not None:
            times.append(self._start_at)
        return min(times, default=None)

    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self.waiting or self.requests or self.encodes) and all(worker.idle for worker in self._workers())

    def leaks(self) -> list[str]:
        """What is held though nothing is under way; meaningful when :meth:`idle`."""
        held = ((worker.name, what, count) for worker in self._workers() for what, count in worker.held().items())
        return [f"{name}: {count} {what}" for name, what, count in held if count]

    def _workers(self) -> list[ArWorker | VocoderWorker]:
        return [*self.ar_workers.values(), *self.vocoders.values()]

    def _expire(self, now: float) -> None:
        for request in self.waiting:
            if request.deadline is not None and now >= request.deadline:
                failure = Failure(503, "deadline_exceeded", "no place became free in time", retry_after=2)
                self._abort(request, "timeout", failure)
        for request in list(self._resting.values()):
            if now >= self._rest_ends(request):
                self._finish(request, "timeout")

    def _rest_ends(self, request: Request) -> float:
        assert request.resting_since is not None, "it rests"
        return request.resting_since + self.settings.open_seconds

    def _admit(self, now: float) -> None:
        """Admit whose turn it is, as long as the worst case of the next one fits."""
        for worker in self.ar_workers.values():
            worker.filling = False
        while (request := self.waiting.next(now)) is not None and self._place(request):
            self.waiting.remove(request.id)
            self.waiting.running[request.client] += 1
            self.requests[request.id] = request
            request.admitted = now
            self.journal.admitted(request, now)
            self.observer.admitted(now - request.arrived, request.prompt_tokens, request.prefilled)
            if request.given:
                self._finish(request, "stop")

    def _place(self, request: Request) -> bool:
        return self.placement.place(request, self.ar_workers.values(), self._usable_vocoders(request.gateway))

    def _usable_vocoders(self, gateway: str) -> list[VocoderWorker]:
        return [worker for worker in self.vocoders.values() if gateway in worker.attached and not worker.leaving]

    def _start_encode(self, vocoder: VocoderWorker) -> None:
        if self.encodes and vocoder.encoding is None and not vocoder.leaving:
            clip = self.encodes.next()
            vocoder.encoding = (clip.gateway, clip.request)
            self._send(vocoder.incarnation, EncodeAudio(clip.request), [clip.samples])

    def _let_go(self) -> None:
        """Let go of workers that want to leave and have nothing left to do."""
        all_done = self.draining and self.idle()
        for worker in self._workers():
            if all_done or (worker.leaving and worker.idle):
                self.ar_workers.pop(worker.incarnation, None)
                self.vocoders.pop(worker.incarnation, None)
                self._send(worker.incarnation, Shutdown())

    # Ends ------------------------------------------------------------------------------------------------------------

    def _finish(self, request: Request, reason: FinishReason) -> None:
        """All frames are here. Sound goes on until the last one is delivered."""
        self._leave_ar(request)
        request.reason = reason
        self.journal.generated(request)
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
        self.waiting.remove(request.id)
        if self.requests.pop(request.id, None) is not None:
            self.waiting.running[request.client] -= 1
            if self.waiting.running[request.client] == 0:
                del self.waiting.running[request.client]
        if request.vocoder is not None:
            request.vocoder.give_up(request)
        assert request.reason is not None, "a request ends for a reason"
        self.observer.ended(request.reason)
        self.journal.ended(request)

    def _leave_ar(self, request: Request) -> None:
        """Give slot and pages back; a step in flight may still answer for them."""
        self._resting.pop(request.id, None)
        if request.ar is not None:
            request.ar.give_up(request)

    def _send(self, peer: str, body: AnyBody, arrays: list[Array] | None = None) -> None:
        self._out.append(Outgoing(peer, body, arrays or []))
