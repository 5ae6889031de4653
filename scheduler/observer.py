"""Observer: the events that the core reports to metrics and to the journal."""

from __future__ import annotations

from typing import Literal, TypeAlias

from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker, Step
from scheduler.workers.vocoder_worker import Call, VocoderWorker

Stage: TypeAlias = Literal["ar", "vocoder"]


class Observer:
    """Does nothing; override the events of interest. Times in seconds."""

    def queued(self, request: Request) -> None:
        """A request was accepted."""

    def refused(self, request: Request) -> None:
        """A request was refused on arrival."""

    def admitted(self, request: Request, worker: str, vocoder: str, cached_tokens: int, now: float) -> None:
        """A request left the queue for these workers ("": none), with so much of its prompt in the prefix cache."""

    def stepped(self, worker: ArWorker, step: Step, seconds: float, now: float) -> None:
        """A step was answered; called before the worker and the requests are updated."""

    def prefilled(self, request: Request, now: float) -> None:
        """A request's first frame, or its end, was drawn."""

    def called(self, worker: VocoderWorker, call: Call, seconds: float, now: float) -> None:
        """A vocoder call was answered; called before the worker and the requests are updated."""

    def stalled(self, request: Request) -> None:
        """Frames had to wait for a client with too much unread sound, which has now read some."""

    def recovered(self, request: Request) -> None:
        """A request that had lost a worker has another."""

    def remade(self, request: Request, stage: Stage, frames: int) -> None:
        """A fault lost what had been made of so many frames: KV pages, or the vocoder's state."""

    def stood_still(self, request: Request, seconds: float) -> None:
        """The listener of a request had nothing to play for so long, because of a fault."""

    def generated(self, request: Request) -> None:
        """All frames of a request have been received."""

    def ended(self, request: Request) -> None:
        """A queued request ended."""


class Observers(Observer):
    """Passes each event on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def queued(self, request: Request) -> None:
        for observer in self._observers:
            observer.queued(request)

    def refused(self, request: Request) -> None:
        for observer in self._observers:
            observer.refused(request)

    def admitted(self, request: Request, worker: str, vocoder: str, cached_tokens: int, now: float) -> None:
        for observer in self._observers:
            observer.admitted(request, worker, vocoder, cached_tokens, now)

    def stepped(self, worker: ArWorker, step: Step, seconds: float, now: float) -> None:
        for observer in self._observers:
            observer.stepped(worker, step, seconds, now)

    def prefilled(self, request: Request, now: float) -> None:
        for observer in self._observers:
            observer.prefilled(request, now)

    def called(self, worker: VocoderWorker, call: Call, seconds: float, now: float) -> None:
        for observer in self._observers:
            observer.called(worker, call, seconds, now)

    def stalled(self, request: Request) -> None:
        for observer in self._observers:
            observer.stalled(request)

    def recovered(self, request: Request) -> None:
        for observer in self._observers:
            observer.recovered(request)

    def remade(self, request: Request, stage: Stage, frames: int) -> None:
        for observer in self._observers:
            observer.remade(request, stage, frames)

    def stood_still(self, request: Request, seconds: float) -> None:
        for observer in self._observers:
            observer.stood_still(request, seconds)

    def generated(self, request: Request) -> None:
        for observer in self._observers:
            observer.generated(request)

    def ended(self, request: Request) -> None:
        for observer in self._observers:
            observer.ended(request)
