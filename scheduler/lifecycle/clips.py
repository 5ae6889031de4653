"""Reference clips to encode: a bounded queue, one clip at a time per vocoder worker."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from common.messages import Array, EncodeAudio, Encoded, Failure
from scheduler.lifecycle.results import ProtocolError
from scheduler.outbox import Outbox
from scheduler.workers.vocoder_worker import VocoderWorker


class Clip(NamedTuple):
    """``samples``: float32 [samples] at the codec's rate."""

    gateway: str
    request: str
    samples: Array


class ClipQueue:
    """``bound``: clips that may wait."""

    def __init__(self, bound: int, outbox: Outbox) -> None:
        self._bound = bound
        self._outbox = outbox
        self._clips: deque[Clip] = deque()

    def __len__(self) -> int:
        return len(self._clips)

    def add(self, clip: Clip, ready: bool) -> None:
        """Queue a clip, or answer why it is refused. ``ready``: there is a worker for it."""
        failure = None
        if not ready:
            failure = Failure(503, "not_ready", "no vocoder worker is ready", retry_after=2)
        elif len(self._clips) >= self._bound:
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
            self._outbox.send(worker.incarnation, EncodeAudio(clip.request, worker.registration), [clip.samples])

    def done(self, worker: VocoderWorker, body: Encoded, arrays: list[Array]) -> None:
        """Pass the result of the worker's clip on to its gateway.

        Raises:
            ProtocolError: not the clip that it had.
        """
        if worker.clip is None or worker.clip[1] != body.request:
            raise ProtocolError(f"clip {body.request} was not being encoded")
        self._outbox.send(worker.clip[0], Encoded(body.request, body.failure), arrays)
        worker.clip = None

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
