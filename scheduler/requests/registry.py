"""The requests under way, from arrival to last sample: who waits, who is admitted, who rests, and how each ends."""

from __future__ import annotations

from common.messages import Array, Ended, Extend, Failure, FinishReason, Rested
from scheduler.observe.journal import Journal
from scheduler.observe.observer import Observer
from scheduler.outbox import Outbox
from scheduler.requests.request import Request
from scheduler.requests.waiting import WaitingQueue


class Roster:
    """``open_seconds``: for how long an admitted request of which all turns are spoken may wait for more text."""

    def __init__(self, open_seconds: float, outbox: Outbox, observer: Observer, journal: Journal) -> None:
        self.waiting = WaitingQueue()
        self.admitted: dict[str, Request] = {}  # until the last sample
        self._resting: dict[str, Request] = {}  # of these: all turns so far spoken, more may come
        self._open_seconds = open_seconds
        self._outbox, self._observer, self._journal = outbox, observer, journal

    def find(self, request_id: str) -> Request | None:
        return self.waiting.get(request_id) or self.admitted.get(request_id)

    def of_gateway(self, gateway: str) -> list[Request]:
        """All that came from a gateway."""
        return [request for request in (*self.waiting, *self.admitted.values()) if request.gateway == gateway]

    def refuse(self, request: Request, failure: Failure) -> None:
        """A request is not even queued."""
        self._observer.ended("rejected")
        self._outbox.send(request.gateway, Ended(request.id, "rejected", 0, failure))

    def queue(self, request: Request) -> None:
        self.waiting.add(request)
        self._journal.queued(request)

    def admit(self, request: Request, now: float) -> None:
        """A request has its places."""
        self.waiting.remove(request.id)
        self.waiting.running[request.client] += 1
        self.admitted[request.id] = request
        self._journal.admitted(request, now)
        self._observer.admitted(now - request.arrived, request.prompt_tokens, request.prefilled)
        if request.given:
            self.finish(request, "stop")

    # Turns and time --------------------------------------------------------------------------------------------------

    def end_turn(self, request: Request, position: int, now: float) -> None:
        """A turn is spoken, see :meth:`Request.end_turn`; the last one ends the request."""
        if not request.end_turn(position, now):
            self.finish(request, "stop")
            return
        assert request.ar is not None, "a request with turns to come has its worker"
        request.ar.end_turn(request)
        if request.resting_since is not None:
            self._resting[request.id] = request
            self._outbox.send(request.gateway, Rested(request.id, request.frames, request.extended))

    def extend(self, request: Request, body: Extend, prompt: Array) -> None:
        """More turns for an open request; or the word that none come, which ends one at rest."""
        more = request.extend(body.turns, prompt, body.last)
        if request.id in self._resting and request.resting_since is None and request.ar is not None:
            del self._resting[request.id]
            request.ar.end_turn(request)
        if not more:
            self.finish(request, "stop")

    def expire(self, now: float) -> None:
        """End what has waited for a place, or for more text, for too long."""
        for request in self.waiting:
            if request.deadline is not None and now >= request.deadline:
                failure = Failure(503, "deadline_exceeded", "no place became free in time", retry_after=2)
                self.abort(request, "timeout", failure)
        for request in list(self._resting.values()):
            if now >= self._rest_ends(request):
                self.finish(request, "timeout")

    def expiries(self) -> list[float]:
        """When there may be something to :meth:`expire`."""
        deadlines = [request.deadline for request in self.waiting if request.deadline is not None]
        return deadlines + [self._rest_ends(request) for request in self._resting.values()]

    def _rest_ends(self, request: Request) -> float:
        assert request.resting_since is not None, "it rests"
        return request.resting_since + self._open_seconds

    # Ends ------------------------------------------------------------------------------------------------------------

    def finish(self, request: Request, reason: FinishReason) -> None:
        """All frames are here. Sound goes on until the last one is delivered."""
        self._leave_ar(request)
        request.reason = reason
        self._journal.generated(request)
        failure = None
        if request.frames == 0:
            failure = Failure(500, "no_audio", "the model ended before the first frame")
            request.reason = "error"
        self._outbox.send(request.gateway, Ended(request.id, request.reason, request.frames, failure))
        if not request.audio or request.delivered == request.frames:
            self.retire(request)

    def abort(self, request: Request, reason: FinishReason, failure: Failure | None) -> None:
        """End a request where it stands. Its gateway is told when there is a failure to tell."""
        self._leave_ar(request)
        request.reason = reason
        if failure is not None:
            self._outbox.send(request.gateway, Ended(request.id, reason, request.frames, failure))
        self.retire(request)

    def retire(self, request: Request) -> None:
        """Forget a request: nothing more will be heard of it."""
        self.waiting.remove(request.id)
        if self.admitted.pop(request.id, None) is not None:
            self.waiting.running[request.client] -= 1
            if self.waiting.running[request.client] == 0:
                del self.waiting.running[request.client]
        if request.vocoder is not None:
            request.vocoder.give_up(request)
        assert request.reason is not None, "a request ends for a reason"
        self._observer.ended(request.reason)
        self._journal.ended(request)

    def _leave_ar(self, request: Request) -> None:
        """Give slot and pages back; a step in flight may still answer for them."""
        self._resting.pop(request.id, None)
        if request.ar is not None:
            request.ar.give_up(request)
