"""Recovery: continues requests that have lost a worker on another one.

The scheduler has each request's prompt and every frame so far. A new AR worker prefills both and draws the next frame;
a new vocoder worker decodes the frames again for the state that they leave, and sound that was delivered is not sent
again. So a stream continues with the very next sample.

A request may be what kills its workers: one that lost several without any progress ends with an error.
"""

from __future__ import annotations

from common.messages import Failure
from scheduler.lifecycle.registry import RequestRegistry
from scheduler.observer import Observer
from scheduler.planning.placement import Placement
from scheduler.requests.request import Request
from scheduler.workers.pool import WorkerPool

LOSSES = 3  # without progress in between
WORKER_LOST = Failure(503, "worker_lost", "the worker for this request was lost", retry_after=1)


class Recovery:
    """``seconds``: how long a request waits for a worker before it ends with an error."""

    def __init__(
        self,
        seconds: float,
        pool: WorkerPool,
        placement: Placement,
        registry: RequestRegistry,
        observer: Observer,
    ) -> None:
        self._seconds, self._pool, self._placement = seconds, pool, placement
        self._registry, self._observer = registry, observer
        self._lost: dict[str, tuple[Request, float]] = {}  # by id: the request, and when it lost its first worker

    def ar_lost(self, incarnation: str, now: float) -> None:
        """Remove a lost AR worker. Its requests continue, except those that only wait for more text."""
        worker = self._pool.lose_ar(incarnation)
        for sequence in worker.sequences.values():
            request = sequence.request
            if request.resting or not self._may_continue(request, now):
                self._registry.abort(request, "error", WORKER_LOST)
            else:
                request.prompt_tokens += request.frames - request.history.replayed
                request.history.merge(worker.semantic_begin)

    def vocoder_lost(self, incarnation: str, now: float) -> None:
        """Remove a lost vocoder worker. Its requests continue."""
        worker = self._pool.lose_vocoder(incarnation)
        for stream in worker.streams.values():
            if self._may_continue(stream.request, now):
                stream.request.playback.restart()
            else:
                self._registry.abort(stream.request, "error", WORKER_LOST)

    def _may_continue(self, request: Request, now: float) -> bool:
        """Whether a request may have another worker; it waits for one from now on."""
        if request.id not in self._lost:
            request.losses = request.losses + 1 if request.progress == request.lost_at else 1
            request.lost_at = request.progress
            self._lost[request.id] = (request, now)
        return request.losses < LOSSES

    def place(self) -> None:
        """Give each waiting request the places it lacks, as far as there are any."""
        for request, _ in list(self._lost.values()):
            if request.id in self._registry.admitted:
                if self._lacks_ar(request):
                    self._placement.on_ar_worker(request)
                if self._lacks_vocoder(request):
                    self._placement.on_vocoder(request)
                if self._lacks_ar(request) or self._lacks_vocoder(request):
                    continue
                self._observer.recovered(request)
            del self._lost[request.id]

    def _lacks_ar(self, request: Request) -> bool:
        return not request.generated and request.id not in self._pool.sequences

    def _lacks_vocoder(self, request: Request) -> bool:
        return request.audio and request.id not in self._pool.streams

    def expire(self, now: float) -> None:
        """End requests that have waited too long."""
        for request, since in list(self._lost.values()):
            if now >= since + self._seconds:
                del self._lost[request.id]
                if request.id in self._registry.admitted:
                    self._registry.abort(request, "error", WORKER_LOST)

    def expiries(self) -> list[float]:
        """Times at which :meth:`expire` may have something to do."""
        return [since + self._seconds for _, since in self._lost.values()]
