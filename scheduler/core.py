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
from scheduler.admission import too_late
from scheduler.calls import plan_call
from scheduler.observer import Observer
from scheduler.policy import make_policy
from scheduler.prefix_cache import page_keys
from scheduler.request import Request
from scheduler.steps import plan_step
from scheduler.waiting import WaitingQueue
from scheduler.workers import ArWorker, VocoderWorker

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
        self.policy = make_policy(settings, frame_seconds)
        self.window = max(1, round(settings.unread_seconds / frame_seconds))
        self.waiting = WaitingQueue()
        self.requests: dict[str, Request] = {}  # admitted, until the last sample
        self.ar_workers: dict[str, ArWorker] = {}
        self.vocoders: dict[str, VocoderWorker] = {}
        self.encodes: deque[tuple[str, str, Array]] = deque()  # (gateway, request, samples)
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
        self.encodes = deque(job for job in self.encodes if job[0] != gateway)
        for vocoder in self.vocoders.values():
            vocoder.attached.discard(gateway)

    def _refuse_unservable(self, failure: Failure) -> None:
        """End what waits for a kind of worker of which none is left."""
        for request in self.waiting:
            if not self.ar_workers or (request.audio and not self.vocoders):
                self._abort(request, "error", failure)
        while self.encodes and not self.vocoders:
            gateway, job, _ = self.encodes.popleft()
            self._send(gateway, Encoded(job, failure))

    # What gateways ask -----------------------------------------------------------------------------------------------

    def submit(self, gateway: str, body: Submit, prompt: Array, now: float) -> None:
        """A request arrives. ``prompt``: int32 [11, positions]."""
        request = Request(gateway, body, prompt, now)
        failure = self._refusal(request) or self._refusal_of_the_long(prompt)
        self._queue(request, failure or self._refusal_of_the_late(request, now), now)

    def vocode(self, gateway: str, body: Vocode, codes: Array, now: float) -> None:
        """Codes arrive that want to be sound. ``codes``: int16 [frames, 10]."""
        request = Request.of_codes(gateway, body, codes, now)
        self._queue(request, self._refusal(request), now)

    def _queue(self, request: Request, failure: Failure | None, now: float) -> None:
        if failure is not None:
            self.observer.ended("rejected")
            self._send(request.gateway, Ended(request.id, "rejected", 0, failure))
            return
        self.waiting.add(request)
        self._admit(now)  # at once, so that the queue holds only those who really wait

    def _refusal(self, request: Request) -> Failure | None:
        if self.waiting.get(request.id) is not None or request.id in self.requests:
            return Failure(409, "duplicate_request", "a request of this id is under way")
        if self.draining:
            return Failure(503, "draining", "the server is shutting down", retry_after=5)
        has_ar_worker = any(not worker.leaving for worker in self.ar_workers.values())
        if not has_ar_worker or (request.audio and not self._usable_vocoders(request.gateway)):
            return Failure(503, "not_ready", "a worker is starting or being restarted", retry_after=2)
        if len(self.waiting) >= self.settings.max_waiting:
            return Failure(429, "queue_full", f"{len(self.waiting)} requests wait already", retry_after=2)
        return None

    def _refusal_of_the_long(self, prompt: Array) -> Failure | None:
        positions, context = prompt.shape[1], max(worker.context for worker in self.ar_workers.values())
        if positions + LOOK_AHEAD_POSITIONS < context:
            return None
        message = f"text and references need {positions} of {context} positions"
        return Failure(400, "context_length_exceeded", message)

    def _refusal_of_the_late(self, request: Request, now: float) -> Failure | None:
        if request.deadline is None or not self.settings.refuse_late:
            return None
        vocoders = self._usable_vocoders(request.gateway) if request.audio else []
        workers = list(self.ar_workers.values())
        if not too_late(request, now, self.waiting, workers, vocoders, self.settings):
            return None
        return Failure(503, "overloaded", "first sound is not to be had in time", retry_after=1)

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
            request.read = min(max(request.read, frame), request.handed)

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
        worker.pages.settle(step.number)
        running = len(worker.requests)
        with_codes: list[Request] = []
        complete: list[Request] = []
        for (request, epoch, position), code, end in zip(step.rows, codes, ended.tolist(), strict=True):
            if request.reason is not None or epoch != request.epoch:
                continue  # asked for before the end of the request, or of its turn, was known
            if request.frames == 0:
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
        workers: list[ArWorker | VocoderWorker] = [*self.ar_workers.values(), *self.vocoders.values()]
        return not (self.waiting or self.requests or self.encodes) and all(worker.idle for worker in workers)

    def leaks(self) -> list[str]:
        """What is held though nothing is under way; meaningful when :meth:`idle`."""
        found = []
        for ar_worker in self.ar_workers.values():
            pool, slots = ar_worker.pages, ar_worker.slots
            held = {"active pages": pool.active, "reserved pages": pool.reserved, "slots": slots.size - slots.free}
            found += [f"{ar_worker.name}: {count} {what}" for what, count in held.items() if count]
        for vocoder in self.vocoders.values():
            held = {"slots": vocoder.slots.size - vocoder.slots.free, "unspoken frames": vocoder.unspoken}
            found += [f"{vocoder.name}: {count} {what}" for what, count in held.items() if count]
        return found

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
            self.observer.admitted(now - request.arrived, request.prompt_tokens, request.prefilled)
            if request.given:
                self._finish(request, "stop")

    def _place(self, request: Request) -> bool:
        """Find an AR slot, pages for the worst case and, for sound, a vocoder slot; all or nothing."""
        vocoder = None
        if request.audio:
            usable = [worker for worker in self._usable_vocoders(request.gateway) if worker.slots.free]
            vocoder = max(usable, key=lambda worker: worker.slots.free, default=None)
            if vocoder is None:
                return False
        placed = request.given or any(self._place_on(worker, request) for worker in self._ar_workers_for(request))
        if placed and vocoder is not None:
            request.vocoder, request.vocoder_lease = vocoder, vocoder.slots.lend()
            vocoder.requests[request.id] = request
            vocoder.unspoken += request.unspoken
        return placed

    def _ar_workers_for(self, request: Request) -> list[ArWorker]:
        """Workers that may take the request: first where most of its prompt lies, then by free slots."""
        able = [worker for worker in self.ar_workers.values() if worker.slots.free and not worker.leaving]
        able = [worker for worker in able if self.policy.may_admit(worker)]
        if len(able) < 2:
            return able
        cached = {worker.incarnation: len(worker.pages.cache.match(self._keys(request, worker))) for worker in able}
        return sorted(able, key=lambda worker: (-cached[worker.incarnation], -worker.slots.free))

    def _keys(self, request: Request, worker: ArWorker) -> list[bytes]:
        return page_keys(request.turns[0], worker.page_size) if self.settings.prefix_cache else []

    def _place_on(self, worker: ArWorker, request: Request) -> bool:
        most_frames = min(request.max_frames, worker.context - request.prompt_tokens - LOOK_AHEAD_POSITIONS)
        if most_frames < 1:
            return False
        keys = self._keys(request, worker)
        worst_case = worker.pages_for(request.prompt_tokens + most_frames + LOOK_AHEAD_POSITIONS)
        shared = worker.pages.admit(keys, worst_case)
        if shared is None:
            return False
        request.max_frames, request.keys, request.shared = most_frames, keys, shared
        request.pages = [node.page for node in shared]
        request.reserved = worst_case - len(shared)
        request.position = request.prefilled = len(shared) * worker.page_size
        request.ar, request.lease = worker, worker.slots.lend()
        request.slot = request.lease.slot
        worker.take(request)
        return True

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
        self.waiting.remove(request.id)
        if self.requests.pop(request.id, None) is not None:
            self.waiting.running[request.client] -= 1
            if self.waiting.running[request.client] == 0:
                del self.waiting.running[request.client]
        if request.vocoder is not None and request.vocoder_lease is not None:
            request.vocoder.requests.pop(request.id, None)
            request.vocoder.unspoken -= request.unspoken
            request.vocoder.slots.give_back(request.vocoder_lease)
            request.vocoder = request.vocoder_lease = None
        assert request.reason is not None, "a request ends for a reason"
        self.observer.ended(request.reason)

    def _leave_ar(self, request: Request) -> None:
        """Give slot and pages back; a step in flight may still answer for them."""
        worker = request.ar
        if worker is None or request.lease is None:
            return
        self._resting.pop(request.id, None)
        worker.forget(request)
        worker.slots.give_back(request.lease)
        if request.assigned:
            worker.released.append(request.lease.slot)
        last_step = worker.in_flight[-1].number if worker.in_flight else -1
        worker.pages.release(request.pages[len(request.shared) :], request.shared, request.reserved, last_step)
        if not worker.in_flight:
            worker.pages.settle(worker.steps)
        request.ar = request.lease = None

    def _send(self, peer: str, body: AnyBody, arrays: list[Array] | None = None) -> None:
        self._out.append(Outgoing(peer, body, arrays or []))
