"""The scheduler's core: takes events and returns messages to send. No sockets, no clock, no torch.

Time is a number of seconds that comes with each event, so the same class serves real traffic, tests and simulations.
An AR worker has one or two steps in flight besides the one at work, or none without look-ahead: the synchronous twin
of the loop, which decides with the same code.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from common.config import Scheduler as Settings
from common.messages import (
    Array,
    ArWorkerHello,
    DecodeDone,
    Disowned,
    Encoded,
    Ended,
    Extend,
    Failure,
    FinishReason,
    Resume,
    Shutdown,
    StepDone,
    Submit,
    Vocode,
    VocoderWorkerHello,
)
from scheduler.dispatch import Dispatcher
from scheduler.lifecycle.clips import Clip, ClipQueue
from scheduler.lifecycle.recovery import WORKER_LOST, Recovery
from scheduler.lifecycle.registry import INTERNAL_ERROR, RequestRegistry
from scheduler.lifecycle.results import Results
from scheduler.observer import Observer
from scheduler.outbox import Outbox, Outgoing
from scheduler.planning.admission import queue_full, refusal
from scheduler.planning.calls import CallPlanner
from scheduler.planning.placement import Placement
from scheduler.planning.policy import make_policy
from scheduler.planning.steps import StepPlanner
from scheduler.requests.request import Request
from scheduler.workers.pool import WorkerPool

log = logging.getLogger(__name__)


class Scheduler:
    """``frame_seconds``: length of a frame of sound. ``observer``: hears of events."""

    def __init__(self, settings: Settings, frame_seconds: float, observer: Observer | None = None) -> None:
        self.settings = settings
        self._observer = observer or Observer()
        self._outbox = Outbox()
        self._pool = WorkerPool(frame_seconds)
        self._registry = RequestRegistry(settings.open_seconds, self._pool, self._outbox, self._observer)
        self._results = Results(frame_seconds, self._pool, self._registry, self._outbox, self._observer)
        self.waiting = self._registry.waiting
        self.requests = self._registry.admitted
        self.ar_workers = self._pool.ar_workers
        self.vocoders = self._pool.vocoders
        self.policy = make_policy(settings, frame_seconds)
        self._placement = Placement(self._pool, self.policy, settings.prefix_cache)
        self._recovery = Recovery(
            settings.recovery_seconds, self._pool, self._placement, self._registry, self._outbox, self._observer
        )
        self.window = max(1, round(settings.unread_seconds / frame_seconds))
        steps = StepPlanner(settings, self.policy, self._registry.fail)
        calls = CallPlanner(self._pool, settings, self.policy, self.window, self._registry.fail)
        self._dispatcher = Dispatcher(self._pool, steps, calls, settings.look_ahead, self._give_up)
        bounds = settings.max_encodes, settings.max_encode_bytes, settings.encode_seconds
        self.clips = ClipQueue(*bounds, self._outbox)
        self.draining = False

    # Workers and gateways come and go --------------------------------------------------------------------------------

    def ar_joined(self, incarnation: str, hello: ArWorkerHello) -> None:
        self._pool.join_ar(incarnation, hello)

    def vocoder_joined(self, incarnation: str, hello: VocoderWorkerHello) -> None:
        self._pool.join_vocoder(incarnation, hello)

    def attached(self, gateway: str, vocoder: str) -> None:
        """A gateway can receive the sound of a vocoder worker."""
        if vocoder in self.vocoders:
            self.vocoders[vocoder].attached.add(gateway)

    def leaving(self, incarnation: str) -> None:
        """A worker wants to stop: it gets nothing new, and is shut down when it has nothing left to do."""
        for worker in self._pool:
            worker.leaving = worker.leaving or worker.incarnation == incarnation

    def drain(self) -> None:
        """Accept nothing new; when everything is done, shut down every worker."""
        self.draining = True

    def peer_lost(self, incarnation: str, now: float, blame_all: bool = False) -> None:
        """A peer is lost: its requests continue elsewhere, a gateway's are cancelled. ``blame_all``: see recovery."""
        if incarnation in self.ar_workers:
            self._recovery.ar_lost(incarnation, now, blame_all)
        elif (worker := self.vocoders.get(incarnation)) is not None:
            self._recovery.vocoder_lost(incarnation, now, blame_all)
            self.clips.fail(worker, WORKER_LOST)
        else:
            self._gateway_lost(incarnation)
        self._refuse_unservable()

    def _gateway_lost(self, gateway: str) -> None:
        for request in self._registry.of_gateway(gateway):
            self._registry.abort(request, "cancelled", None)
        self.clips.forget(gateway)
        self._pool.detach(gateway)

    def _refuse_unservable(self) -> None:
        """End waiting requests and clips that need a kind of worker of which none is left."""
        for request in self.waiting:
            if not self._pool.serves(request):
                self._registry.abort(request, "error", WORKER_LOST)
        if not self.vocoders:
            self.clips.fail_all(WORKER_LOST)

    # Messages of gateways --------------------------------------------------------------------------------------------

    def submit(self, gateway: str, body: Submit, prompt: Array, now: float) -> None:
        """A request arrives. ``prompt``: int32 [11, positions]."""
        self._queue(Request(gateway, body, prompt, now), now)

    def vocode(self, gateway: str, body: Vocode, codes: Array, now: float) -> None:
        """A request for the sound of given frames arrives. ``codes``: int16 [frames, 10]."""
        self._queue(Request.of_codes(gateway, body, codes, now), now)

    def resume(self, gateway: str, body: Resume, arrays: list[Array], now: float) -> None:
        """A request goes on after a fault. ``arrays``: see :class:`Resume`."""
        if (known := self._registry.find(body.what.request)) is not None:
            self._recovery.resend(known, body.received, now)
        elif body.received:
            self._recovery.adopt(Request.resumed(gateway, body, arrays, now), now)
            self._admit(now)
        else:
            self._queue(Request.resumed(gateway, body, arrays, now), now)

    def _queue(self, request: Request, now: float) -> None:
        if (failure := self._refusal(request)) is not None:
            self._registry.refuse(request, failure)
            return
        if len(self.waiting) >= self.settings.max_waiting and (other := self.waiting.gives_way(request)) is not None:
            self._registry.abort(other, "rejected", queue_full(len(self.waiting)))
        self._registry.queue(request)
        self._admit(now)  # at once, so that the queue holds only those that have to wait

    def _refusal(self, request: Request) -> Failure | None:
        """Reason for not queueing the request; None if it is queued."""
        if self._registry.find(request.id) is not None:
            return Failure(409, "duplicate_request", "a request with this id is under way")
        if self.draining:
            return Failure(503, "draining", "the server is shutting down", retry_after=5)
        ar_workers = [worker for worker in self.ar_workers.values() if not worker.leaving]
        vocoders = self._pool.reachable_vocoders(request.gateway)
        if not ar_workers or (request.audio and not vocoders):
            return Failure(503, "not_ready", "a worker is starting or being restarted", retry_after=2)
        try:
            return refusal(request, self.waiting, ar_workers, vocoders, self.settings)
        except Exception:
            log.exception("the prediction failed")  # perhaps at another request: no reason to refuse this one
            return None

    def extend(self, request_id: str, body: Extend, prompt: Array) -> None:
        """More text arrives for an open request. ``prompt``: int32 [11, positions]."""
        request = self._registry.find(request_id)
        if request is None or not request.open or request.generated:
            return
        if request.history.prompt_tokens + prompt.shape[1] > request.prompt_tokens:
            failure = Failure(400, "context_length_exceeded", "the text exceeds the room that was asked for")
            self._registry.abort(request, "error", failure)
            return
        self._registry.extend(request, body, prompt)

    def cancel(self, request_id: str, reason: FinishReason) -> None:
        """The client has gone, or its gateway has given up on it. Settles when the steps in flight are answered."""
        if (request := self._registry.find(request_id)) is not None:
            self._registry.abort(request, reason, None)

    def credit(self, request_id: str, frame: int) -> None:
        """The client has read up to ``frame``. Cumulative; may arrive before the vocoder's result does."""
        if (request := self.requests.get(request_id)) is not None:
            self._registry.credit(request, frame, self.window)

    def fail(self, gateway: str, request_id: str) -> None:
        """A message about a request raised the exception that is being handled: the request ends with an error."""
        if (request := self._registry.find(request_id)) is not None:
            self._registry.fail(request)
        else:
            self._outbox.send(gateway, Ended(request_id, "error", 0, INTERNAL_ERROR))

    def encode(self, gateway: str, request_id: str, samples: Array, now: float) -> None:
        """Encode reference audio, float32 [samples]; answered by :class:`Encoded`."""
        self.clips.add(Clip(gateway, request_id, samples, now), ready=bool(self.vocoders) and not self.draining)

    # Results of workers ----------------------------------------------------------------------------------------------

    def step_done(self, incarnation: str, body: StepDone, codes: Array, ended: Array, now: float) -> None:
        """A step was answered. ``codes``: int16 [n, 10]; ``ended``: uint8 [n].

        Raises:
            ProtocolError: not the step that was due, or not its number of rows.
        """
        worker = self.ar_workers[incarnation]
        if body.registration == worker.registration:  # else a late answer to what it was given up for
            self._results.step(worker, body, codes, ended, now)

    def decode_done(self, incarnation: str, body: DecodeDone, now: float) -> None:
        """A vocoder call was answered: its sound is with the gateways.

        Raises:
            ProtocolError: not the call that was due.
        """
        worker = self.vocoders[incarnation]
        if body.registration != worker.registration:
            return
        call = self._results.call(worker, body, now)
        for gateway in body.unreachable:
            self._recovery.unreachable(self.vocoders[incarnation], gateway, now)
        self._results.delivered(call, now)

    def encode_done(self, incarnation: str, body: Encoded, arrays: list[Array]) -> None:
        """A vocoder worker has encoded its clip, or could not.

        Raises:
            ProtocolError: not the clip that it had.
        """
        worker = self.vocoders[incarnation]
        if body.registration == worker.registration:
            self.clips.done(worker, body, arrays)

    # Plans -----------------------------------------------------------------------------------------------------------

    def plan(self, now: float) -> Iterator[Outgoing]:
        """Make all decisions that can be made now; yields the messages to send, to each peer in its order.

        Decisions are made while the caller iterates, so iterate to the end. Steps come first, each as soon as it is
        planned, since a device may be waiting for it. A peer found lost while sending may be reported at once.
        """
        self._registry.expire(now)
        self._recovery.expire(now)
        self.clips.expire(now)
        self._admit(now)
        yield from self._dispatcher.steps(now)
        yield from self._dispatcher.calls(now)
        for vocoder in self.vocoders.values():
            self.clips.start(vocoder)
        self._shut_down()
        yield from self._outbox.take()

    def _give_up(self, incarnation: str, now: float) -> None:
        """A worker has to register again: its state here is unknown."""
        self.peer_lost(incarnation, now, blame_all=True)
        self._outbox.send(incarnation, Disowned())

    def wake_at(self) -> float | None:
        """The time at which to plan again even if nothing happens; None: never."""
        at = min(
            [*self._registry.expiries(), *self._recovery.expiries(), *self.clips.expiries(), self._dispatcher.call_at]
        )
        return None if math.isinf(at) else at

    def hanging(self, now: float) -> list[str]:
        """Incarnations of workers whose step or call at work takes far longer than it should."""
        return self._pool.hanging(self.settings.hang_timeout, now)

    def idle(self) -> bool:
        """Return whether nothing is under way."""
        return not (self.waiting or self.requests or self.clips) and all(worker.idle for worker in self._pool)

    def leaks(self) -> list[str]:
        """Resources held though nothing is under way; meaningful when :meth:`idle`."""
        return self._pool.held()

    def _admit(self, now: float) -> None:
        """Admit waiting requests in their order as long as the next one fits; lost ones take precedence."""
        for worker in self.ar_workers.values():
            worker.batch_open = False
        self._recovery.place()
        while (request := self.waiting.next(now, self._placement.able)) is not None:
            try:
                if not self._placement.place(request):
                    break
                self._registry.admit(request, now)
            except Exception:
                self._registry.fail(request)

    def _shut_down(self) -> None:
        """Shut down workers that want to leave and have nothing left to do."""
        all_done = self.draining and self.idle()
        for worker in self._pool:
            if all_done or (worker.leaving and worker.idle):
                self._pool.remove(worker.incarnation)
                self._outbox.send(worker.incarnation, Shutdown())
