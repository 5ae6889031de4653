"""What workers answer: whose frames a step has drawn, whose sound a call has made."""

from __future__ import annotations

import numpy as np

from common.messages import Array, Codes, DecodeDone, Encoded, FrameSpan, StepDone
from scheduler.observe.journal import Journal
from scheduler.observe.observer import Observer
from scheduler.outbox import Outbox
from scheduler.requests.registry import Roster
from scheduler.requests.request import Request
from scheduler.resources.workers import ArWorker, Call, Step, VocoderWorker


class ProtocolError(Exception):
    """A worker answered what it was not asked."""


class Answers:
    """Settles each answer with the requests that it is for. ``frame_seconds``: length of a frame of sound."""

    def __init__(
        self, frame_seconds: float, roster: Roster, outbox: Outbox, observer: Observer, journal: Journal
    ) -> None:
        self._frame_seconds = frame_seconds
        self._roster, self._outbox, self._observer, self._journal = roster, outbox, observer, journal

    # Steps -----------------------------------------------------------------------------------------------------------

    def step(self, worker: ArWorker, body: StepDone, codes: Array, ended: Array, now: float) -> None:
        """See :meth:`scheduler.core.Scheduler.step_done`."""
        step = _due_step(worker, body, codes, ended)
        self._learn_step(worker, step, body.duration, now)
        running = len(worker.requests)
        with_codes: list[Request] = []
        complete: list[Request] = []
        for (request, epoch, position), code, end in zip(step.rows, _rows(codes), ended.tolist(), strict=True):
            if request.reason is not None or epoch != request.epoch:
                continue  # asked for before the end of the request, or of its turn, was known
            if request.record.first_codes is None:
                self._prefilled(request, now)
            if end:
                self._roster.end_turn(request, position, now)
                continue
            request.append(code)
            if request.vocoder is not None:
                request.vocoder.unspoken += 1
            elif not request.audio:
                with_codes.append(request)
            if request.frames == request.max_frames:
                complete.append(request)
        self._forward_codes(with_codes)
        for request in complete:
            self._roster.finish(request, "length")
        _note_ends(worker, running - len(worker.requests), now)

    def _learn_step(self, worker: ArWorker, step: Step, seconds: float, now: float) -> None:
        rows, tokens = len(step.rows), step.prefill_tokens
        worker.step_seconds.add(seconds)
        worker.step_cost.add(seconds, rows, tokens)
        worker.pages.settle(step.number)
        self._observer.stepped(seconds, rows, tokens)
        self._journal.stepped(worker, step, seconds, now)
        worker.answered = now

    def _prefilled(self, request: Request, now: float) -> None:
        """The first turn's prompt is settled, and may serve others."""
        assert request.ar is not None, "its frames are drawn by a worker"
        assert request.record.admitted is not None, "and it has been admitted to it"
        self._observer.prefilled(now - request.record.admitted)
        self._journal.prefilled(request, now)
        request.ar.pages.share(request.shared, request.keys, request.pages)

    def _forward_codes(self, requests: list[Request]) -> None:
        """Send the newest frame of each to its gateway, one message per gateway."""
        for gateway in {request.gateway for request in requests}:
            mine = [request for request in requests if request.gateway == gateway]
            spans = [FrameSpan(request.id, request.frames - 1, 1) for request in mine]
            codes = np.concatenate([request.codes(request.frames - 1, 1) for request in mine])
            self._outbox.send(gateway, Codes(spans), [codes])

    # Calls and clips -------------------------------------------------------------------------------------------------

    def call(self, worker: VocoderWorker, body: DecodeDone, now: float) -> Call:
        """A vocoder call was answered, whoever may have heard its sound.

        Raises:
            ProtocolError: not the call that was due.
        """
        if not worker.in_flight or worker.in_flight[0].number != body.call:
            raise ProtocolError(f"call {body.call} was not due")
        call = worker.in_flight[0]
        self._observer.called(body.duration, len(call.spoken), call.frames)
        self._journal.called(worker, call, body.duration, now)
        worker.in_flight.popleft()
        worker.call_seconds.add(body.duration)
        worker.call_cost.add(body.duration, call.frames)
        others = worker.call_cost.predict(call.frames) - worker.call_cost.predict(call.due)
        worker.due_share.add(min(1.0, max(0.0, body.duration - others) / max(now - worker.answered, 1e-9)))
        worker.answered = now
        return call

    def delivered(self, call: Call, now: float) -> None:
        """The sound of a call is with the gateways of those requests that are still admitted."""
        for request, frame in call.spoken:
            if request.id not in self._roster.admitted:
                continue
            if frame > request.delivered:  # else only what another worker had delivered before
                start = now if request.play_end is None else max(request.play_end, now)
                request.play_end = start + (frame - request.delivered) * self._frame_seconds
                request.delivered = frame
            if request.generated and request.delivered == request.frames:
                self._roster.retire(request)

    def clip(self, worker: VocoderWorker, body: Encoded, arrays: list[Array]) -> None:
        """See :meth:`scheduler.core.Scheduler.encode_done`."""
        if worker.encoding is None or worker.encoding[1] != body.request:
            raise ProtocolError(f"clip {body.request} was not being encoded")
        self._outbox.send(worker.encoding[0], body, arrays)
        worker.encoding = None


def _due_step(worker: ArWorker, body: StepDone, codes: Array, ended: Array) -> Step:
    """The step that this is the answer to, no longer in flight."""
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


def _note_ends(worker: ArWorker, ends: int, now: float) -> None:
    """Learn how often a place becomes free."""
    if ends == 0:
        return
    if worker.last_end is not None:
        worker.between_ends.add((now - worker.last_end) / ends)
    worker.last_end = now
