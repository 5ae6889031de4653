"""Journal of recent requests, steps and calls, for gateways that ask. Bounded; one record per step or call."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from common import timeline
from common.timeline import CallItem, CallRecord, RequestRecord, SchedulerRecords, StepRecord
from scheduler.observer import Observer
from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker, Step
from scheduler.workers.vocoder_worker import Call, VocoderWorker

T = TypeVar("T", StepRecord, CallRecord)


class Journal(Observer):
    """Written by the core; :meth:`recent` and :meth:`page` may be called from any thread.

    ``requests``: ended ones to keep; ``events``: steps to keep, and as many calls. ``clock``: the clock of the times
    that the core passes; the core itself has none.
    """

    def __init__(self, requests: int = 256, events: int = 4096, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[int, RequestRecord] = {}
        self._ended: deque[RequestRecord] = deque(maxlen=requests)
        self._steps: deque[StepRecord] = deque(maxlen=events)
        self._calls: deque[CallRecord] = deque(maxlen=events)

    # Events ----------------------------------------------------------------------------------------------------------

    def queued(self, request: Request) -> None:
        self._open[request.number] = RequestRecord(request.number, request.id, request.arrived, request.prompt_tokens)

    def admitted(self, request: Request, worker: str, vocoder: str, cached_tokens: int, now: float) -> None:
        record = self._open[request.number]
        record.admitted, record.cached_tokens = now, cached_tokens
        record.ar_worker, record.vocoder_worker = worker, vocoder

    def stepped(self, worker: ArWorker, step: Step, seconds: float, now: float) -> None:
        began = max(step.sent, worker.answered)
        prompts = [request.number for request in step.prompts]
        for number in prompts:
            record = self._open.get(number)
            if record is not None and record.prefill is None:
                record.prefill = began
        drawn = [row[0].request.number for row in step.rows]
        self._steps.append(
            StepRecord(worker.name, step.number, began, now, seconds, step.prompt_tokens, drawn, prompts)
        )

    def prefilled(self, request: Request, now: float) -> None:
        self._open[request.number].first_codes = now

    def called(self, worker: VocoderWorker, call: Call, seconds: float, now: float) -> None:
        items = []
        for stream, frame in call.items:
            request = stream.request
            delivered = request.playback.delivered
            items.append(CallItem(request.number, delivered, frame - delivered))
            record = self._open.get(request.number)
            if record is not None:
                record.first_call = call.sent if record.first_call is None else record.first_call
                record.sounded, record.calls, record.frames = now, record.calls + 1, request.frames
        self._calls.append(CallRecord(worker.name, call.number, worker.began, now, seconds, items))

    def generated(self, request: Request) -> None:
        self._open[request.number].generated = self._clock()

    def ended(self, request: Request) -> None:
        record = self._open.pop(request.number)
        record.ended, record.reason, record.frames = self._clock(), request.reason, request.frames
        self._ended.append(record)

    # Queries ---------------------------------------------------------------------------------------------------------

    def recent(self, since: float, until: float, work: bool) -> SchedulerRecords:
        """Requests under way between two times and, with ``work``, the steps and calls."""
        # Copies made at once, while the core goes on.
        records = [*list(self._ended), *list(self._open.values())]
        requests = [
            record for record in records if record.queued <= until and (record.ended is None or record.ended >= since)
        ]
        if not work:
            return SchedulerRecords(requests, [], [])
        return SchedulerRecords(
            requests, _within(list(self._steps), since, until), _within(list(self._calls), since, until)
        )

    def page(self, parameters: Mapping[str, str]) -> bytes:
        """The reply at :data:`common.timeline.PAGE`.

        Raises:
            ValueError, KeyError: the parameters are not a window of time.
        """
        since, until = float(parameters["since"]), float(parameters["until"])
        return timeline.encode(self.recent(since, until, timeline.WORK in parameters))


def _within(records: list[T], since: float, until: float) -> list[T]:
    return [record for record in records if record.answered >= since and record.began <= until]
