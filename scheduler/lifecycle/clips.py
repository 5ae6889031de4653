"""Reference clips to encode: a bounded queue, one clip at a time per vocoder worker."""

from __future__ import annotations

import itertools
from collections import deque
from typing import NamedTuple

from common.messages import Array, EncodeAudio, Encoded, Failure
from scheduler.lifecycle.results import ProtocolError
from scheduler.outbox import Outbox
from scheduler.workers.vocoder_worker import VocoderWorker

TOO_LONG = Failure(503, "overloaded", "the reference audio could not be encoded in time", retry_after=5)


class Clip(NamedTuple):
    """``samples``: float32 [samples] at the codec's rate."""

    gateway: str
    request: str
    samples: Array
    arrived: float


class ClipQueue:
    """``bound`` and ``max_bytes``: of all clips that wait. ``seconds``: how long a clip may wait and be encoded."""

    def __init__(self, bound: int, max_bytes: int, seconds: float, outbox: Outbox) -> None:
        self._bound, self._max_bytes, self._seconds = bound, max_bytes, seconds
        self._outbox = outbox
        self._clips: deque[Clip] = deque()
        self._encoding: dict[tuple[str, str], float] = {}  # (gateway, request) of those at work: when they came

    def __len__(self) -> int:
        return len(self._clips)

    def add(self, clip: Clip, ready: bool) -> None:
        """Queue a clip, or answer why it is refused. ``ready``: there is a worker for it."""
        failure = None
        waiting = sum(other.samples.nbytes for other in self._clips)
        if not ready:
            failure = Failure(503, "not_ready", "no vocoder worker is ready", retry_after=2)
        elif len(self._clips) >= self._bound or (self._clips and waiting + clip.samples.nbytes > self._max_bytes):
            failure = Failure(429, "queue_full", f"{len(self._clips)} clips are waiting already", retry_after=2)
        if failure is None:
            self._clips.append(clip)
        else:
            self._outbox.send(clip.gateway, Encoded(clip.request, failure))

    def start(self, worker: VocoderWorker) -> None:
        """Send the worker the clip that has waited longest, if it is free and stays."""
        if self._clips and worker.clip is None and not worker.leaving:
            clip = self._clips.popleft()
            worker.clip = (clip.gateway, clip.request)
            self._encoding[worker.clip] = clip.arrived
            self._outbox.send(worker.incarnation, EncodeAudio(clip.request, worker.registration), [clip.samples])

    def done(self, worker: VocoderWorker, body: Encoded, arrays: list[Array]) -> None:
        """Pass the result of the worker's clip on to its gateway, unless that was told before that it took too long.

        Raises:
            ProtocolError: not the clip that the worker had.
        """
        if worker.clip is None or worker.clip[1] != body.request:
            raise ProtocolError(f"clip {body.request} was not being encoded")
        if self._encoding.pop(worker.clip, None) is not None:
            self._outbox.send(worker.clip[0], Encoded(body.request, body.failure), arrays)
        worker.clip = None

    def expire(self, now: float) -> None:
        """Give up clips that have taken too long. A worker at work on one finishes it; its result is dropped."""
        if not self._clips and not self._encoding:
            return
        late = [clip for clip in self._clips if now >= clip.arrived + self._seconds]
        self._clips = deque(clip for clip in self._clips if now < clip.arrived + self._seconds)
        names = [(clip.gateway, clip.request) for clip in late]
        names += [name for name, arrived in self._encoding.items() if now >= arrived + self._seconds]
        for gateway, request in names:
            self._encoding.pop((gateway, request), None)
            self._outbox.send(gateway, Encoded(request, TOO_LONG))

    def expiries(self) -> list[float]:
        """Times at which :meth:`expire` may have something to do."""
        first = [clip.arrived for clip in itertools.islice(self._clips, 1)]
        return [arrived + self._seconds for arrived in (*first, *self._encoding.values())]

    def fail(self, worker: VocoderWorker, failure: Failure) -> None:
        """The worker is lost, and its clip with it."""
        if worker.clip is not None:
            self.done(worker, Encoded(worker.clip[1], failure), [])

    def fail_all(self, failure: Failure) -> None:
        """No worker is left to encode what waits."""
        while self._clips:
            clip = self._clips.popleft()
            self._outbox.send(clip.gateway, Encoded(clip.request, failure))

    def forget(self, gateway: str) -> None:
        """A gateway is lost, and its clips with it."""
        self._clips = deque(clip for clip in self._clips if clip.gateway != gateway)
        for name in [name for name in self._encoding if name[0] == gateway]:
            del self._encoding[name]
