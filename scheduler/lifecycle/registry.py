"""Registry of the requests under way, from arrival to last sample, and how each of them ends."""

from __future__ import annotations

import itertools
import logging

from common.messages import Array, Ended, Extend, Failure, FinishReason, Rested
from scheduler.observer import Observer
from scheduler.outbox import Outbox
from scheduler.requests.request import Request
from scheduler.requests.waiting import WaitingQueue
from scheduler.workers.ar_worker import Sequence
from scheduler.workers.pool import WorkerPool

INTERNAL_ERROR = Failure(500, "internal_error", "the scheduler failed at this request")

log = logging.getLogger(__name__)


class RequestRegistry:
    """``open_seconds``: how long an admitted request may wait for more text when all its turns are spoken."""

    def __init__(self, open_seconds: float, pool: WorkerPool, outbox: Outbox, observer: Observer) -> None:
        self.waiting = WaitingQueue()
        self.admitted: dict[str, Request] = {}  # until the last sample
        self._resting: dict[str, Request] = {}  # of these: all turns so far spoken, more may come
        self._numbers = itertools.count(1)
        self._open_seconds = open_seconds
        self._pool, self._outbox, self._observer = pool, outbox, observer

    def find(self, request_id: str) -> Request | None:
        return self.waiting.get(request_id) or self.admitted.get(request_id)

    def of_gateway(self, gateway: str) -> list[Request]:
        """All requests of a gateway."""
        return [request for request in (*self.waiting, *self.admitted.values()) if request.gateway == gateway]

    def refuse(self, request: Request, failure: Failure) -> None:
        """Refuse a request on arrival."""
        self._observer.refused(request)
        self._outbox.send(request.gateway, Ended(request.id, "rejected", 0, failure))

    def queue(self, request: Request) -> None:
        request.number = next(self._numbers)
        request.queued_behind = len(self.waiting)
        self.waiting.add(request)
        self._observer.queued(request)

    def admit(self, request: Request, now: float) -> None:
        """Begin to serve a request that has its places."""
        self.waiting.remove(request.id)
        self.waiting.running[request.client] += 1
        self.admitted[request.id] = request
        request.admitted_at = now
        sequence, stream = self._pool.sequences.get(request.id), self._pool.streams.get(request.id)
        worker, cached_tokens = ("", 0) if sequence is None else (sequence.worker.name, sequence.prefilled)
        self._observer.admitted(request, worker, "" if stream is None else stream.worker.name, cached_tokens, now)
        if request.vocode_only:
            self.finish(request, "stop")

    def adopt(self, request: Request, now: float) -> None:
        """Take over a request that another scheduler began; it has no places yet."""
        request.number = next(self._numbers)
        request.admitted_at = request.first_frame_at = now
        self.waiting.running[request.client] += 1
        self.admitted[request.id] = request
        self._observer.queued(request)
        self._observer.admitted(request, "", "", 0, now)
        if request.vocode_only:
            self.finish(request, "stop")
        elif request.frames >= request.max_frames:
            self.finish(request, "length")

    def credit(self, request: Request, frame: int, window: int) -> None:
        """The client has read up to ``frame``. ``window``: frames that may be with it unread."""
        playback = request.playback
        if frame > playback.read and request.unsent and playback.delivered - playback.read >= window:
            self._observer.stalled(request)
        playback.credit(frame)

    # Turns and time --------------------------------------------------------------------------------------------------

    def finish_turn(self, sequence: Sequence, position: int, now: float) -> None:
        """The end token was drawn before ``position``: the next turn begins, the request rests, or it is finished."""
        request = sequence.request
        if not request.finish_turn(now):
            self.finish(request, "stop")
            return
        sequence.finish_turn(position)
        if request.resting:
            self._resting[request.id] = request
            self._outbox.send(request.gateway, Rested(request.id, request.frames, request.extensions))
        else:
            sequence.start_turn()

    def rouse(self, request: Request) -> None:
        """End the rest of a request that has lost its AR worker, if it rests: its current turn goes on."""
        if self._resting.pop(request.id, None) is not None:
            request.resting_since = None

    def extend(self, request: Request, body: Extend, prompt: Array) -> None:
        """Add turns to an open request. The notice that no more turns come ends a resting one."""
        more = request.extend(body.turns, prompt, body.last)
        if request.id in self._resting and not request.resting:
            del self._resting[request.id]
            self._pool.sequences[request.id].start_turn()
        if not more:
            self.finish(request, "stop")

    def expire(self, now: float) -> None:
        """End requests that have waited too long for a place or for more text."""
        for request in (*self.waiting, *self._resting.values()):
            try:
                self._expire(request, now)
            except Exception:
                self.fail(request)

    def _expire(self, request: Request, now: float) -> None:
        if request.resting_since is not None:
            if now >= self._rest_ends(request):
                self.finish(request, "timeout")
        elif request.deadline is not None and now >= request.deadline:
            failure = Failure(503, "deadline_exceeded", "no place became free in time", retry_after=2)
            self.abort(request, "timeout", failure)

    def expiries(self) -> list[float]:
        """Times at which :meth:`expire` may have something to do."""
        deadlines = [request.deadline for request in self.waiting if request.deadline is not None]
        return deadlines + [self._rest_ends(request) for request in self._resting.values()]

    def _rest_ends(self, request: Request) -> float:
        assert request.resting_since is not None, "it rests"
        return request.resting_since + self._open_seconds

    # Ends ------------------------------------------------------------------------------------------------------------

    def finish(self, request: Request, reason: FinishReason) -> None:
        """All frames have been received. Sound goes on until the last one is delivered."""
        self._leave_ar(request)
        request.reason = reason
        self._observer.generated(request)
        failure = None
        if request.frames == 0:
            failure = Failure(500, "no_audio", "the model ended before the first frame")
            request.reason = "error"
        self._outbox.send(request.gateway, Ended(request.id, request.reason, request.frames, failure))
        if not request.audio or request.playback.delivered == request.frames:
            self.retire(request)

    def abort(self, request: Request, reason: FinishReason, failure: Failure | None) -> None:
        """End a request where it stands. Its gateway is told if there is a failure."""
        self._leave_ar(request)
        request.reason = reason
        if failure is not None:
            self._outbox.send(request.gateway, Ended(request.id, reason, request.frames, failure))
        self.retire(request)

    def fail(self, request: Request) -> None:
        """End a request at which a decision raised the exception that is being handled; the others continue."""
        log.exception("a request failed", extra={"request": request.id})
        if self.find(request.id) is request:
            self.abort(request, "error", INTERNAL_ERROR)

    def retire(self, request: Request) -> None:
        """Forget a request; no more messages about it follow."""
        self.waiting.remove(request.id)
        if self.admitted.pop(request.id, None) is not None:
            self.waiting.running[request.client] -= 1
            if self.waiting.running[request.client] == 0:
                del self.waiting.running[request.client]
        self._pool.release_stream(request)
        self._observer.ended(request)

    def _leave_ar(self, request: Request) -> None:
        """Release slot and pages; a step in flight may still have rows of the request."""
        self._resting.pop(request.id, None)
        self._pool.release_sequence(request)
