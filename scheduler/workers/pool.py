"""The registered workers, and the place of each request on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from common.messages import ArWorkerHello, VocoderWorkerHello
from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker, Sequence
from scheduler.workers.vocoder_worker import Stream, VocoderWorker

LOOK_AHEAD_POSITIONS = 1  # a step sent before the end was known may write one position more


class WorkerPool:
    """Workers by incarnation; ``sequences`` and ``streams`` by request."""

    def __init__(self, frame_seconds: float) -> None:
        self._frame_seconds = frame_seconds
        self._registrations = itertools.count(1)
        self.ar_workers: dict[str, ArWorker] = {}
        self.vocoders: dict[str, VocoderWorker] = {}
        self.sequences: dict[str, Sequence] = {}
        self.streams: dict[str, Stream] = {}

    def join_ar(self, incarnation: str, hello: ArWorkerHello) -> None:
        self.ar_workers[incarnation] = ArWorker(incarnation, next(self._registrations), hello, self._frame_seconds)

    def join_vocoder(self, incarnation: str, hello: VocoderWorkerHello) -> None:
        self.vocoders[incarnation] = VocoderWorker(incarnation, next(self._registrations), hello)

    def lose_ar(self, incarnation: str) -> ArWorker:
        """Remove an AR worker with all places on it; its ``sequences`` remain, for their requests."""
        worker = self.ar_workers.pop(incarnation)
        for request_id, sequence in worker.sequences.items():
            sequence.released = True
            del self.sequences[request_id]
        return worker

    def lose_vocoder(self, incarnation: str) -> VocoderWorker:
        """Remove a vocoder worker with all places on it; its ``streams`` remain, for their requests."""
        worker = self.vocoders.pop(incarnation)
        for request_id in worker.streams:
            del self.streams[request_id]
        return worker

    def __iter__(self) -> Iterator[ArWorker | VocoderWorker]:
        return iter([*self.ar_workers.values(), *self.vocoders.values()])

    def remove(self, incarnation: str) -> None:
        """Remove a worker that has no place to lose."""
        self.ar_workers.pop(incarnation, None)
        self.vocoders.pop(incarnation, None)

    def detach(self, gateway: str) -> None:
        """A gateway is lost."""
        for vocoder in self.vocoders.values():
            vocoder.attached.discard(gateway)

    def serves(self, request: Request) -> bool:
        """Return whether the request has a worker of each kind that it needs, and one whose context is long enough."""
        fits = any(worker.context > request.prompt_tokens + LOOK_AHEAD_POSITIONS for worker in self.ar_workers.values())
        return fits and bool(self.vocoders or not request.audio)

    def held(self) -> list[str]:
        """Resources held by requests, described in words."""
        held = ((worker.name, what, count) for worker in self for what, count in worker.held().items())
        return [f"{name}: {count} {what}" for name, what, count in held if count]

    def hanging(self, timeout: float, now: float) -> list[str]:
        """Incarnations of workers whose step or call at work takes far longer than it should."""
        return [worker.incarnation for worker in self if worker.hangs(timeout, now)]

    def reachable_vocoders(self, gateway: str) -> list[VocoderWorker]:
        """Vocoder workers whose sound the gateway can receive and that take new streams."""
        return [worker for worker in self.vocoders.values() if gateway in worker.attached and not worker.leaving]

    def step_seconds(self, request: Request) -> float:
        """Recent duration of a step of the request's AR worker; 0 if it has none."""
        sequence = self.sequences.get(request.id)
        return 0.0 if sequence is None else sequence.worker.step_seconds.value

    def release_sequence(self, request: Request) -> None:
        """Release the request's slot and pages, if it has them."""
        sequence = self.sequences.pop(request.id, None)
        if sequence is not None:
            sequence.worker.release(sequence)

    def release_stream(self, request: Request) -> None:
        """Release the request's vocoder slot, if it has one."""
        stream = self.streams.pop(request.id, None)
        if stream is not None:
            stream.worker.release(stream)
