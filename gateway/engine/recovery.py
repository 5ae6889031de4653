"""Recovery at the gateway: asks for the rest of streams that a fault has interrupted.

Faults are the loss of the scheduler, a cut connection to a vocoder worker, and frames that were lost with a worker that
had reported them as sent. In each case the gateway names the frames that it has (:class:`Resume`), and the scheduler
makes the rest, so a stream continues with the very next sample. Every wait here has a bound.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from common.messages import Array, Ended, Resume
from gateway.engine.errors import SCHEDULER_LOST
from gateway.engine.metrics import EngineMetrics, ResumeCause
from gateway.engine.requests import OpenRequest

MAX_RESUMES = 3  # without a new frame in between; then the stream ends with an error
HOLE_SECONDS = 2.0  # in which frames after a hole may still come that were sent before it was known
SILENCE_SECONDS = 10.0  # without a new frame, though the client has read all; then the gateway asks

log = logging.getLogger(__name__)


class Recovery:
    """``send`` sends a message to the present scheduler. ``seconds``: how long a stream waits for a scheduler."""

    def __init__(
        self,
        requests: Mapping[str, OpenRequest],
        send: Callable[[Resume, list[Array]], None],
        metrics: EngineMetrics,
        seconds: float,
    ) -> None:
        self._requests, self._send, self._metrics, self._seconds = requests, send, metrics, seconds
        self._suspended: set[str] = set()  # requests without a scheduler
        self._watched = 0.0

    # The scheduler is lost -------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """The scheduler is lost: streams wait for the next one."""
        lost = {request.id for request in self._requests.values() if not _over(request)}
        if not lost:
            return
        log.warning("streams wait for a scheduler", extra={"streams": len(lost)})
        self._suspended |= lost
        asyncio.get_running_loop().call_later(self._seconds, self._give_up, frozenset(lost))

    def take_over(self, scheduler: str) -> None:
        """There is a group that can serve: it takes over the streams that wait; those that clients hear come first."""
        if not self._suspended:
            return
        waiting = [self._requests[name] for name in self._requests if name in self._suspended]
        self._suspended.clear()
        for request in sorted(waiting, key=lambda request: not request.stream.begun):
            request.scheduler = scheduler
            request.stream.reopen()
            self._resume(request, "scheduler")

    def _give_up(self, requests: frozenset[str]) -> None:
        """No scheduler came in time."""
        self.fail(requests & self._suspended)
        self._suspended -= requests

    def fail(self, requests: Iterable[str]) -> None:
        """End streams because their scheduler is lost."""
        for name in requests:
            request = self._requests.get(name)
            if request is not None and not _over(request):
                request.stream.end(Ended(name, "error", 0, SCHEDULER_LOST))

    # Frames are lost -------------------------------------------------------------------------------------------------

    def connected(self, vocoder: str) -> None:
        """A vocoder worker can be heard, perhaps again: what it sent before may be lost."""
        for request in self._requests.values():
            if request.audio and request.vocoder in (vocoder, "") and (request.stream.begun or request.stream.ended):
                self._check(request, "vocoder")

    def vocoder_lost(self, vocoder: str) -> None:
        """A vocoder worker is lost. The scheduler takes care of its streams but for those that it thought delivered."""
        for request in self._requests.values():
            if request.vocoder == vocoder and request.stream.ended:
                self._check(request, "vocoder")

    def hole(self, name: str) -> bool:
        """Frames came before which others are missing; whether these are made again."""
        request = self._requests[name]
        if request.id in self._suspended or time.monotonic() < request.asked + HOLE_SECONDS:
            return True
        if not request.may_resume(MAX_RESUMES):
            return False
        log.warning("frames of a stream are missing", extra={"request": name, "received": request.stream.received})
        self._resume(request, "hole")
        return True

    def watch(self) -> None:
        """Ask about streams of which nothing has come for long. Call it often."""
        now = time.monotonic()
        if now < self._watched + 1:
            return
        self._watched = now
        for request in self._requests.values():
            stream = request.stream
            if now < max(request.heard, request.asked) + SILENCE_SECONDS or not stream.drained or stream.at_rest:
                continue
            if request.audio and (stream.begun or stream.ended):
                self._check(request, "silence")

    def _check(self, request: OpenRequest, cause: ResumeCause) -> None:
        """Have the scheduler compare what it takes for delivered with what is here."""
        if not _over(request) and request.id not in self._suspended:
            self._resume(request, cause)

    def _resume(self, request: OpenRequest, cause: ResumeCause) -> None:
        self._metrics.resumes[cause].inc()
        request.resumed, request.asked = True, time.monotonic()
        self._send(*request.resume())

    def progressed(self, request: OpenRequest) -> None:
        """A frame or the end has come."""
        now = time.monotonic()
        if request.asked > request.heard:
            self._metrics.pause.observe(now - request.heard)
        request.heard = now


def _over(request: OpenRequest) -> bool:
    return request.stream.failed or request.stream.complete
