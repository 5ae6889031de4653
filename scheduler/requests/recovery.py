"""Requests that have lost a worker, until another has them.

The scheduler has each request's prompt and every code so far. A new AR worker prefills both and goes on with the next
frame; a new vocoder worker decodes the codes once more for the state they leave, and what was delivered is not sent
again. So a stream goes on from the very next sample.

A request may be what its workers die of: one that lost several without getting any further ends with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from common.messages import Failure
from scheduler.observe.observer import Observer
from scheduler.requests.registry import Roster
from scheduler.requests.request import Request
from scheduler.resources.placement import Placement
from scheduler.resources.workers import ArWorker, VocoderWorker

LOSSES = 3  # without a frame in between
WORKER_LOST = Failure(503, "worker_lost", "the worker for this request was lost", retry_after=1)


class Recovery:
    """``seconds``: for how long a request waits for a worker before it ends with an error."""

    def __init__(self, seconds: float, placement: Placement, roster: Roster, observer: Observer) -> None:
        self._seconds, self._placement, self._roster, self._observer = seconds, placement, roster, observer
        self._lost: dict[str, tuple[Request, float]] = {}  # by id: the request, and when it lost a worker first

    def ar_lost(self, worker: ArWorker, now: float) -> None:
        """An AR worker is gone. One of its requests that only waits for more text ends with it."""
        for request in list(worker.requests.values()):
            if request.resting_since is not None or not self._may_go_on(request, now):
                self._roster.abort(request, "error", WORKER_LOST)
            else:
                request.leave_lost_ar(worker.semantic_begin)

    def vocoder_lost(self, worker: VocoderWorker, now: float) -> None:
        """A vocoder worker is gone."""
        for request in list(worker.requests.values()):
            if self._may_go_on(request, now):
                request.leave_lost_vocoder()
            else:
                self._roster.abort(request, "error", WORKER_LOST)

    def _may_go_on(self, request: Request, now: float) -> bool:
        """Whether a request is to have another worker; from now on it waits for one."""
        if request.id not in self._lost:
            request.losses = request.losses + 1 if request.progress == request.lost_at else 1
            request.lost_at = request.progress
            self._lost[request.id] = (request, now)
        return request.losses < LOSSES

    def place(self, ar_workers: Iterable[ArWorker], vocoders_of: Callable[[str], list[VocoderWorker]]) -> None:
        """Give each what it lacks, if it can be had. ``vocoders_of``: those that a gateway can be reached from."""
        for request, _ in list(self._lost.values()):
            if request.id in self._roster.admitted:
                if request.lacks_ar:
                    self._placement.on_ar_worker(request, ar_workers)
                if request.lacks_vocoder:
                    self._placement.on_vocoder(request, vocoders_of(request.gateway))
                if request.lacks_ar or request.lacks_vocoder:
                    continue
                self._observer.recovered()
            del self._lost[request.id]

    def expire(self, now: float) -> None:
        """End those that have waited for too long."""
        for request, since in list(self._lost.values()):
            if now >= since + self._seconds:
                del self._lost[request.id]
                if request.id in self._roster.admitted:
                    self._roster.abort(request, "error", WORKER_LOST)

    def expiries(self) -> list[float]:
        """When there may be something to :meth:`expire`."""
        return [since + self._seconds for _, since in self._lost.values()]
