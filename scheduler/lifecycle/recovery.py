"""Recovery: continues requests that have lost a worker on another one.

The scheduler has each request's prompt and every frame so far. A new AR worker prefills both and draws the next frame;
a new vocoder worker decodes the frames again for the state that they leave, and sound that was delivered is not sent
again. So a stream continues with the very next sample. The same holds for a request of another scheduler, whose gateway
has the prompt and the frames, and for sound that was lost on its way to the gateway.

A request may be what kills its workers. Requests that were being worked on at two losses in a row, without progress in
between, are suspects: from then on a worker gets one of them at a time, until it has made progress. If that worker dies
at work on it, the suspect ends with an error, and none of the others is blamed.
"""

from __future__ import annotations

from collections.abc import Callable

from common.messages import Detached, Failure
from scheduler.lifecycle.registry import RequestRegistry
from scheduler.observer import Observer
from scheduler.outbox import Outbox
from scheduler.planning.placement import Placement
from scheduler.requests.request import Request
from scheduler.workers.pool import WorkerPool
from scheduler.workers.vocoder_worker import VocoderWorker

MOST_RESENDS = 3  # without progress in between
WORKER_LOST = Failure(503, "worker_lost", "the worker for this request was lost", retry_after=1)
KILLS_WORKERS = Failure(
    500, "worker_lost", "each worker that was at work on this request was lost"
)  # no second attempt


class Recovery:
    """``seconds``: how long a request waits for a worker before it ends with an error."""

    def __init__(
        self,
        seconds: float,
        pool: WorkerPool,
        placement: Placement,
        registry: RequestRegistry,
        outbox: Outbox,
        observer: Observer,
    ) -> None:
        self._seconds, self._pool, self._placement = seconds, pool, placement
        self._registry, self._outbox, self._observer = registry, outbox, observer
        self._lost: dict[str, tuple[Request, float]] = {}  # by id: the request, and when it lost its first worker
        self._unmerged: set[str] = set()  # of these: adopted, and no AR worker has been there since

    def ar_lost(self, incarnation: str, now: float, blame_all: bool = False) -> None:
        """Remove a lost AR worker. Its requests continue; those at rest draw their last end again, and rest again.

        ``blame_all``: any of its requests may be the reason, and not only those that it was at work on.
        """
        worker = self._pool.lose_ar(incarnation)
        requests = [sequence.request for sequence in worker.sequences.values()]
        at_work = set(worker.sequences) if blame_all else worker.at_work()
        suspects = [request for request in requests if request.kills_ar and request.id in at_work]

        def leave(request: Request, blamed: bool) -> None:
            self._registry.rouse(request)
            if blamed:
                request.ar_losses.add(request.frames)
            request.prompt_tokens += request.frames - request.history.replayed
            request.history.merge(worker.semantic_begin)
            self._observer.remade(request, "ar", request.frames)
            self._await_places(request, now)

        self._take_off(requests, at_work, suspects, leave)

    def vocoder_lost(self, incarnation: str, now: float, blame_all: bool = False) -> None:
        """Remove a lost vocoder worker. Its requests continue. ``blame_all``: as in :meth:`ar_lost`."""
        worker = self._pool.lose_vocoder(incarnation)
        requests = [stream.request for stream in worker.streams.values()]
        at_work = set(worker.streams) if blame_all else worker.at_work()
        suspects = [request for request in requests if request.kills_vocoder and request.id in at_work]

        def leave(request: Request, blamed: bool) -> None:
            if blamed:
                request.vocoder_losses.add(request.playback.delivered)
            request.playback.restart()
            self._observer.remade(request, "vocoder", request.playback.delivered)
            self._await_places(request, now)

        self._take_off(requests, at_work, suspects, leave)

    def _take_off(
        self,
        requests: list[Request],
        at_work: set[str],
        suspects: list[Request],
        leave: Callable[[Request, bool], None],
    ) -> None:
        """Take requests off a lost worker: a lone suspect ends, all others leave.

        ``leave``: called with a request and whether the loss counts against it, since it was at work and no lone
        suspect explains the loss.
        """
        for request in requests:
            try:
                if suspects == [request]:
                    self._registry.abort(request, "error", KILLS_WORKERS)
                else:
                    leave(request, len(suspects) != 1 and request.id in at_work)
            except Exception:
                self._registry.fail(request)

    def unreachable(self, vocoder: VocoderWorker, gateway: str, now: float) -> None:
        """A vocoder worker has no connection to a gateway: its streams there wait until there is one."""
        vocoder.attached.discard(gateway)
        self._outbox.send(gateway, Detached(vocoder.incarnation))
        for stream in list(vocoder.streams.values()):
            if stream.request.gateway == gateway:
                self._send_again(stream.request, stream.request.playback.delivered, now)

    def resend(self, request: Request, received: int, now: float) -> None:
        """Make sound again that was lost on its way to the gateway, which has ``received`` frames."""
        if request.audio and request.id in self._registry.admitted and received < request.playback.delivered:
            self._send_again(request, received, now)

    def _send_again(self, request: Request, frame: int, now: float) -> None:
        self._pool.release_stream(request)
        self._observer.remade(request, "vocoder", request.playback.delivered)
        request.playback.rewind(frame)
        if request.resends.add(frame) >= MOST_RESENDS:
            self._registry.abort(request, "error", WORKER_LOST)
        else:
            self._await_places(request, now)

    def adopt(self, request: Request, now: float) -> None:
        """Take over a request that another scheduler began."""
        self._registry.adopt(request, now)
        if request.id in self._registry.admitted:
            self._observer.remade(request, "vocoder", request.playback.delivered)
            self._await_places(request, now)
            if not request.generated:
                self._observer.remade(request, "ar", request.frames)
                self._unmerged.add(request.id)

    def _await_places(self, request: Request, now: float) -> None:
        request.interrupted = True
        self._lost.setdefault(request.id, (request, now))

    def _merge(self, request: Request) -> bool:
        """Prepare an adopted request for AR workers; False if there are none, which alone know their model's tokens."""
        worker = next(iter(self._pool.ar_workers.values()), None)
        if worker is None:
            return False
        request.prompt_tokens += request.frames
        request.history.merge(worker.semantic_begin)
        self._unmerged.discard(request.id)
        return True

    def place(self) -> None:
        """Give each waiting request the places it lacks, as far as there are any."""
        for request, _ in list(self._lost.values()):
            try:
                if request.id in self._registry.admitted:
                    self._place(request)
                    if self._lacks_ar(request) or self._lacks_vocoder(request):
                        continue
                    self._observer.recovered(request)
            except Exception:
                self._registry.fail(request)
            self._forget(request)

    def _forget(self, request: Request) -> None:
        del self._lost[request.id]
        self._unmerged.discard(request.id)

    def _place(self, request: Request) -> None:
        if self._lacks_ar(request) and (request.id not in self._unmerged or self._merge(request)):
            self._placement.on_ar_worker(request)
        if self._lacks_vocoder(request):
            self._placement.on_vocoder(request)

    def _lacks_ar(self, request: Request) -> bool:
        return not request.generated and request.id not in self._pool.sequences

    def _lacks_vocoder(self, request: Request) -> bool:
        return request.audio and request.id not in self._pool.streams

    def expire(self, now: float) -> None:
        """End requests that have waited too long."""
        for request, since in list(self._lost.values()):
            if now >= since + self._seconds:
                self._forget(request)
                if request.id in self._registry.admitted:
                    self._registry.abort(request, "error", WORKER_LOST)

    def expiries(self) -> list[float]:
        """Times at which :meth:`expire` may have something to do."""
        return [since + self._seconds for _, since in self._lost.values()]
