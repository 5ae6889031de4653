"""What the scheduler remembers of its recent work, for gateways that ask: bounded, and one record per step or call."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from common import timeline
from common.timeline import CallItem, CallRecord, Recent, RequestRecord, StepRecord
from scheduler.requests.request import Request
from scheduler.resources.workers import ArWorker, Call, Step, VocoderWorker

T = TypeVar("T", StepRecord, CallRecord)


class Journal:
    """Written by the core; :meth:`recent` and :meth:`page` may be called from any thread.

    ``requests``: ended ones that are kept; ``events``: steps, and as many calls. ``clock``: of the times that the core
    hands in; the core itself has none.
    """

    def __init__(self, requests: int = 256, events: int = 4096, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._open: dict[int, RequestRecord] = {}
        self._ended: deque[RequestRecord] = deque(maxlen=requests)
        self._steps: deque[StepRecord] = deque(maxlen=events)
        self._calls: deque[CallRecord] = deque(maxlen=events)

    # What the core tells ---------------------------------------------------------------------------------------------

    def queued(self, request: Request) -> None:
        """A request was accepted."""
        request.record.number = next(self._numbers)
        self._open[request.record.number] = request.record

    def admitted(self, request: Request, now: float) -> None:
        """A request left the queue; what of its prompt was in the prefix cache counts as prefilled already."""
        record = request.record
        record.admitted, record.cached_tokens = now, request.prefilled
        record.ar_worker = "" if request.ar is None else request.ar.name
        record.vocoder_worker = "" if request.vocoder is None else request.vocoder.name

    def stepped(self, worker: ArWorker, step: Step, seconds: float, now: float) -> None:
        """A step was answered. Before the worker counts as having done so."""
        began = max(step.sent, worker.answered)
        for request in step.prompts:
            if request.record.prefill is None:
                request.record.prefill = began
        drawn = [request.record.number for request, _, _ in step.rows]
        prompts = [request.record.number for request in step.prompts]
        record = StepRecord(worker.name, step.number, began, now, seconds, step.prefill_tokens, drawn, prompts)
        self._steps.append(record)

    def prefilled(self, request: Request, now: float) -> None:
        """A request's prompt is done: its first frame was drawn, or its end."""
        request.record.first_codes = now

    def called(self, worker: VocoderWorker, call: Call, seconds: float, now: float) -> None:
        """The call at work was answered. Before the core counts its frames as delivered."""
        items = []
        for request, frame in call.spoken:
            record = request.record
            record.first_call = call.sent if record.first_call is None else record.first_call
            record.sounded, record.calls, record.frames = now, record.calls + 1, request.frames
            items.append(CallItem(record.number, request.delivered, frame - request.delivered))
        self._calls.append(CallRecord(worker.name, call.number, worker.began, now, seconds, items))

    def generated(self, request: Request) -> None:
        """All frames of a request are here."""
        request.record.generated = self._clock()

    def ended(self, request: Request) -> None:
        """Nothing more will be heard of a request."""
        record = self._open.pop(request.record.number)
        record.ended, record.reason, record.frames = self._clock(), request.reason, request.frames
        self._ended.append(record)

    # Who asks --------------------------------------------------------------------------------------------------------

    def recent(self, since: float, until: float, work: bool) -> Recent:
        """What was under way between two times; the steps and calls only with ``work``."""
        # Copies made at once, while the core goes on.
        records = [*list(self._ended), *list(self._open.values())]
        requests = [
            record for record in records if record.queued <= until and (record.ended is None or record.ended >= since)
        ]
        if not work:
            return Recent(requests, [], [])
        return Recent(requests, _within(list(self._steps), since, until), _within(list(self._calls), since, until))

    def page(self, parameters: Mapping[str, str]) -> bytes:
        """The reply at :data:`common.timeline.PAGE`.

        Raises:
            ValueError, KeyError: no window of time.
        """
        since, until = float(parameters["since"]), float(parameters["until"])
        return timeline.encode(self.recent(since, until, timeline.WORK in parameters))


def _within(records: list[T], since: float, until: float) -> list[T]:
    return [record for record in records if record.answered >= since and record.began <= until]
