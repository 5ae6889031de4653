"""Results of steps and calls: applies the frames drawn and the sound delivered to the requests."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from common.messages import Array, Codes, DecodeDone, FrameSpan, StepDone
from scheduler.lifecycle.registry import RequestRegistry
from scheduler.observer import Observer
from scheduler.outbox import Outbox
from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker, Sequence, Step
from scheduler.workers.pool import WorkerPool
from scheduler.workers.vocoder_worker import Call, VocoderWorker


class ProtocolError(Exception):
    """A worker sent a result that was not due."""


class Results:
    """``frame_seconds``: length of a frame of sound."""

    def __init__(
        self, frame_seconds: float, pool: WorkerPool, registry: RequestRegistry, outbox: Outbox, observer: Observer
    ) -> None:
        self._frame_seconds = frame_seconds
        self._pool, self._registry, self._outbox, self._observer = pool, registry, outbox, observer

    # Steps -----------------------------------------------------------------------------------------------------------

    def step(self, worker: ArWorker, body: StepDone, codes: Array, ended: Array, now: float) -> None:
        """Apply a step's result, see :meth:`scheduler.core.Scheduler.step_done`."""
        step = _due_step(worker, body, codes, ended)
        self._learn_step(worker, step, body.duration, now)
        with_codes: list[Request] = []
        complete: list[Request] = []
        streams = self._pool.streams
        for (sequence, epoch, position), code, end in zip(step.rows, _rows(codes), ended.tolist(), strict=True):
            if sequence.released or epoch != sequence.epoch:
                continue  # planned before the end of the request, or of its turn, was known
            request = sequence.request
            try:
                if request.first_frame_at is None:
                    self._prefilled(sequence, now)
                if end:
                    self._registry.finish_turn(sequence, position, now)
                    continue
                history = request.history
                history.append(code)
                stream = streams.get(request.id)
                if stream is not None:
                    stream.worker.unsent += 1
                elif not request.audio:
                    with_codes.append(request)
                if history.frames == request.max_frames:
                    complete.append(request)
            except Exception:
                self._registry.fail(request)
        self._forward_codes(with_codes)
        for request in complete:
            if not request.generated:  # else it has just failed
                self._registry.finish(request, "length")

    def _learn_step(self, worker: ArWorker, step: Step, seconds: float, now: float) -> None:
        self._observer.stepped(worker, step, seconds, now)
        worker.lengths.forget(max(0.0, step.sent - worker.answered))  # the time for which it was idle
        worker.step_seconds.add(seconds)
        worker.step_cost.add(seconds, len(step.rows), step.prompt_tokens)
        worker.pages.settle(step.number)
        worker.answered = now

    def _prefilled(self, sequence: Sequence, now: float) -> None:
        """The first turn's prompt is settled; its pages may be shared."""
        sequence.request.first_frame_at = now
        self._observer.prefilled(sequence.request, now)
        sequence.worker.pages.share(sequence.shared, sequence.page_keys, sequence.pages)

    def _forward_codes(self, requests: list[Request]) -> None:
        """Send the newest frame of each to its gateway, one message per gateway."""
        newest: dict[str, list[tuple[FrameSpan, Array]]] = defaultdict(list)
        for request in requests:
            try:
                codes = request.history.codes(request.frames - 1, 1)
                newest[request.gateway].append((_newest_frame(request), codes))
            except Exception:
                self._registry.fail(request)
        for gateway, parts in newest.items():
            frames = np.concatenate([codes for _, codes in parts])
            self._outbox.send(gateway, Codes([span for span, _ in parts]), [frames])

    # Calls -----------------------------------------------------------------------------------------------------------

    def call(self, worker: VocoderWorker, body: DecodeDone, now: float) -> Call:
        """Settle a call with its worker, before :meth:`delivered` applies it to the requests.

        Raises:
            ProtocolError: the call was not due.
        """
        if not worker.in_flight or worker.in_flight[0].number != body.call:
            raise ProtocolError(f"call {body.call} was not due")
        call = worker.in_flight[0]
        self._observer.called(worker, call, body.duration, now)
        worker.in_flight.popleft()
        worker.call_seconds.add(body.duration)
        worker.call_cost.add(body.duration, call.frames)
        fill = worker.call_cost.predict(call.frames) - worker.call_cost.predict(call.due)
        worker.due_share.add(min(1.0, max(0.0, body.duration - fill) / max(now - worker.answered, 1e-9)))
        worker.answered = now
        return call

    def delivered(self, call: Call, now: float) -> None:
        """The sound of a call is with the gateways of those requests that still have their place on the worker."""
        for stream, frame in call.items:
            request = stream.request
            if self._pool.streams.get(request.id) is not stream:
                continue
            try:
                self._deliver(request, frame, now)
                if request.generated and request.playback.delivered == request.frames:
                    self._registry.retire(request)
            except Exception:
                self._registry.fail(request)

    def _deliver(self, request: Request, frame: int, now: float) -> None:
        playback = request.playback
        if request.interrupted and frame > playback.delivered:
            request.interrupted = False
            if playback.play_end is not None and now > playback.play_end:
                self._observer.stood_still(request, now - playback.play_end)
        playback.deliver(frame, now, self._frame_seconds)


def _newest_frame(request: Request) -> FrameSpan:
    first = request.frames - 1
    return FrameSpan(request.id, first, 1, request.history.turn_starts_in(first, 1))


def _due_step(worker: ArWorker, body: StepDone, codes: Array, ended: Array) -> Step:
    """The step that this result belongs to, no longer in flight."""
    if not worker.in_flight or worker.in_flight[0].number != body.step:
        raise ProtocolError(f"step {body.step} was not due")
    step = worker.in_flight.popleft()
    if codes.shape != (len(step.rows), 10) or ended.shape != (len(step.rows),):
        raise ProtocolError(f"step {body.step} has {len(step.rows)} rows, not codes {codes.shape}")
    return step


def _rows(codes: Array) -> list[bytes]:
    """The bytes of each row, as int16."""
    data = codes.astype(np.int16, copy=False).tobytes()
    size = len(data) // max(1, len(codes))
    return [data[begin : begin + size] for begin in range(0, len(data), size)] if data else []
