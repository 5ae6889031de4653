"""The scheduler's heart: it takes events and returns what is to be sent. No sockets, no clock, no torch.

Time is a number of seconds handed in with each event. The same class serves real traffic and runs in tests and
simulations. An AR worker has one or two steps in flight ahead of the one at work, or none without look-ahead: the
synchronous twin of the loop, which decides by the same code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from common.config import Scheduler as Settings
from common.messages import (
    Array,
    ArWorkerHello,
    DecodeDone,
    EncodeAudio,
    Encoded,
    Extend,
    Failure,
    FinishReason,
    Shutdown,
    StepDone,
    Submit,
    Vocode,
    VocoderWorkerHello,
)
from scheduler.observe.journal import Journal
from scheduler.observe.observer import Observer
from scheduler.outbox import Outbox, Outgoing
from scheduler.planning.calls import plan_call
from scheduler.planning.clips import Clip, Encodes
from scheduler.planning.policy import make_policy
from scheduler.planning.steps import plan_step
from scheduler.requests.admission import refusal
from scheduler.requests.recovery import WORKER_LOST, Recovery
from scheduler.requests.registry import Roster
from scheduler.requests.request import Request
from scheduler.resources.placement import Placement
from scheduler.resources.workers import ArWorker, VocoderWorker
from scheduler.results import Answers


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
        self.journal = journal or Journal()
        observer = observer or Observer()
        self._observer = observer
        self._outbox = Outbox()
        self._roster = Roster(settings.open_seconds, self._outbox, observer, self.journal)
        self._answers = Answers(frame_seconds, self._roster, self._outbox, observer, self.journal)
        self.waiting = self._roster.waiting
        self.requests = self._roster.admitted
        self.policy = make_policy(settings, frame_seconds)
        self.placement = Placement(self.policy, settings.prefix_cache)
        self._recovery = Recovery(settings.recovery_seconds, self.placement, self._roster, observer)
        self.window = max(1, round(settings.unread_seconds / frame_seconds))
        self.ar_workers: dict[str, ArWorker] = {}
        self.vocoders: dict[str, VocoderWorker] = {}
        self.encodes = Encodes(settings.max_encodes)
        self.draining = False
        self._call_at = math.inf  # when the next call may be sent, for which it is too early

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

    def peer_lost(self, incarnation: str, now: float) -> None:
        """A process has gone, whichever it was. Requests a worker worked on go on with another, or with it when it is
        back; a gateway's are cancelled."""
        if incarnation in self.ar_workers:
            self._recovery.ar_lost(self.ar_workers.pop(incarnation), now)
        elif incarnation in self.vocoders:
            worker = self.vocoders.pop(incarnation)
            self._recovery.vocoder_lost(worker, now)
            if worker.encoding is not None:
                self._outbox.send(worker.encoding[0], Encoded(worker.encoding[1], WORKER_LOST))
        else:
            self._gateway_lost(incarnation)
        self._refuse_unservable()

    def _gateway_lost(self, gateway: str) -> None:
        for request in self._roster.of_gateway(gateway):
            self._roster.abort(request, "cancelled", None)
        self.encodes.forget(gateway)
        for vocoder in self.vocoders.values():
            vocoder.attached.discard(gateway)

    def _refuse_unservable(self) -> None:
        """End what waits for a kind of worker of which none is left."""
        for request in self.waiting:
            if not self.ar_workers or (request.audio and not self.vocoders):
                self._roster.abort(request, "error", WORKER_LOST)
        while self.encodes and not self.vocoders:
            clip = self.encodes.next()
            self._outbox.send(clip.gateway, Encoded(clip.request, WORKER_LOST))

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
            self._roster.refuse(request, failure)
            return
        self._roster.queue(request)
        self._admit(now)  # at once, so that the queue holds only those who really wait

    def _refusal(self, request: Request) -> Failure | None:
        """Why the request is not even queued, if so."""
        if self._roster.find(request.id) is not None:
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
        request = self._roster.find(request_id)
        if request is None or not request.open or request.generated:
            return
        if sum(turn.shape[1] for turn in request.turns) + prompt.shape[1] > request.prompt_tokens:
            failure = Failure(400, "context_length_exceeded", "more text than there was room asked for")
            self._roster.abort(request, "error", failure)
            return
        self._roster.extend(request, body, prompt)

    def cancel(self, request_id: str, reason: FinishReason) -> None:
        """The client has gone, or its gateway has given up on it. Settles at the edge of the steps in flight."""
        request = self._roster.find(request_id)
        if request is not None:
            self._roster.abort(request, reason, None)

    def credit(self, request_id: str, frame: int) -> None:
        """The client has read up to ``frame``. Cumulative; may be known before the vocoder's own answer is."""
        request = self.requests.get(request_id)
        if request is not None:
            if frame > request.read and request.unspoken and request.delivered - request.read >= self.window:
                self._observer.stalled()
            request.read = min(max(request.read, frame), max(request.handed, request.delivered))

    def encode(self, gateway: str, request_id: str, samples: Array) -> None:
        """Encode reference audio; answered by :class:`Encoded`."""
        if self.draining or not self.vocoders:
            failure: Failure | None = Failure(503, "not_ready", "no vocoder worker is ready", retry_after=2)
        else:
            failure = self.encodes.add(Clip(gateway, request_id, samples))
        if failure is not None:
            self._outbox.send(gateway, Encoded(request_id, failure))

    # What workers answer ---------------------------------------------------------------------------------------------

    def step_done(self, incarnation: str, body: StepDone, codes: Array, ended: Array, now: float) -> None:
        """A step was answered. ``codes``: int16 [n, 10]; ``ended``: uint8 [n].

        Raises:
            ProtocolError: not the step that was due, or not its number of rows.
        """
        self._answers.step(self.ar_workers[incarnation], body, codes, ended, now)

    def decode_done(self, incarnation: str, body: DecodeDone, now: float) -> None:
        """A vocoder call was answered: its sound is with the gateways.

        Raises:
            ProtocolError: not the call that was due.
        """
        call = self._answers.call(self.vocoders[incarnation], body, now)
        for gateway in body.unreachable:
            self._gateway_lost(gateway)
        self._answers.delivered(call, now)

    def encode_done(self, incarnation: str, body: Encoded, arrays: list[Array]) -> None:
        """A vocoder worker has encoded its clip, or could not.

        Raises:
            ProtocolError: not the clip that it had.
        """
        self._answers.clip(self.vocoders[incarnation], body, arrays)

    # Plans -----------------------------------------------------------------------------------------------------------

    def plan(self, now: float) -> Iterator[Outgoing]:
        """Decide all that can be decided now; what is to be sent, to each peer in its order.

        Nothing is decided before it is asked for, so go on to the end. Steps come first, as soon as they are decided:
        a device may wait for them. A peer that turns out to be lost while they are sent may be reported at once.
        """
        self._roster.expire(now)
        self._recovery.expire(now)
        self._admit(now)
        yield from self._steps(now)
        self._call_at = math.inf
        for vocoder in self.vocoders.values():
            self._call(vocoder, now)
            self._start_encode(vocoder)
        self._let_go()
        yield from self._outbox.take()

    def _steps(self, now: float) -> Iterator[Outgoing]:
        for worker in list(self.ar_workers.values()):
            most = 1 + (worker.ahead if self.settings.look_ahead else 0)
            while worker.incarnation in self.ar_workers and len(worker.in_flight) < most:
                step = plan_step(worker, self.settings, self.policy, now, len(self.waiting) > 0)
                if step is None:
                    break
                yield Outgoing(worker.incarnation, step.plan, step.arrays)

    def _call(self, vocoder: VocoderWorker, now: float) -> None:
        call_at = vocoder.next_call_at(self.settings.look_ahead)
        if call_at > now:
            if vocoder.unspoken:
                self._call_at = min(self._call_at, call_at)
            return
        call = plan_call(vocoder, self.settings, self.policy, now, self.window)
        if call is not None:
            self._outbox.send(vocoder.incarnation, call.plan, call.arrays)

    def wake_at(self) -> float | None:
        """When to plan again even if nothing happens."""
        at = min([*self._roster.expiries(), *self._recovery.expiries(), self._call_at])
        return None if math.isinf(at) else at

    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self.waiting or self.requests or self.encodes) and all(worker.idle for worker in self._workers())

    def leaks(self) -> list[str]:
        """What is held though nothing is under way; meaningful when :meth:`idle`."""
        held = ((worker.name, what, count) for worker in self._workers() for what, count in worker.held().items())
        return [f"{name}: {count} {what}" for name, what, count in held if count]

    def _workers(self) -> list[ArWorker | VocoderWorker]:
        return [*self.ar_workers.values(), *self.vocoders.values()]

    def _admit(self, now: float) -> None:
        """Admit whose turn it is, as long as the worst case of the next one fits; first who has lost a worker."""
        for worker in self.ar_workers.values():
            worker.filling = False
        self._recovery.place(self.ar_workers.values(), self._usable_vocoders)
        while (request := self.waiting.next(now)) is not None and self._place(request):
            self._roster.admit(request, now)

    def _place(self, request: Request) -> bool:
        return self.placement.place(request, self.ar_workers.values(), self._usable_vocoders(request.gateway))

    def _usable_vocoders(self, gateway: str) -> list[VocoderWorker]:
        return [worker for worker in self.vocoders.values() if gateway in worker.attached and not worker.leaving]

    def _start_encode(self, vocoder: VocoderWorker) -> None:
        if self.encodes and vocoder.encoding is None and not vocoder.leaving:
            clip = self.encodes.next()
            vocoder.encoding = (clip.gateway, clip.request)
            self._outbox.send(vocoder.incarnation, EncodeAudio(clip.request), [clip.samples])

    def _let_go(self) -> None:
        """Let go of workers that want to leave and have nothing left to do."""
        all_done = self.draining and self.idle()
        for worker in self._workers():
            if all_done or (worker.leaving and worker.idle):
                self.ar_workers.pop(worker.incarnation, None)
                self.vocoders.pop(worker.incarnation, None)
                self._outbox.send(worker.incarnation, Shutdown())
