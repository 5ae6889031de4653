"""The vocoder worker's compute loop: decode calls first, spans of reference clips when no call waits."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import zmq

from common import transport
from common.messages import (
    Array,
    Attach,
    Attached,
    Audio,
    DecodeDone,
    DecodePlan,
    EncodeAudio,
    Encoded,
    Failure,
    FrameSpan,
    Message,
    MessageError,
    VocoderWorkerHello,
    pack,
    unpack,
)
from common.process import Process
from common.transport import Context, PeerGoneError
from common.worker import Reset, Stop, WorkerLink
from vocoder_worker.encode_share import EncodeShare
from vocoder_worker.executor import EncodeJob, Executor
from vocoder_worker.metrics import VocoderMetrics

log = logging.getLogger(__name__)


class Clip(NamedTuple):
    """A clip being encoded. ``asked``: the message that requested it."""

    asked: Message
    body: EncodeAudio
    job: EncodeJob


class VocoderWorker:
    """Runs an executor on behalf of the scheduler."""

    def __init__(self, process: Process, context: Context, executor: Executor) -> None:
        self._process = process
        self._executor = executor
        self._metrics = VocoderMetrics(process.registry, executor)
        self._audio, endpoint = context.router(transport.audio_endpoint(process.config, process.name))
        self._link = WorkerLink(process, context, VocoderWorkerHello(process.name, executor.slots, endpoint))
        self._link.on_readable(self._audio, self._on_attach)
        self._metrics.queues.values = self._link.queues
        self._clip: Clip | None = None
        self._share = EncodeShare()

    def run(self) -> None:
        """Serve until told to stop."""
        with self._link:
            while not isinstance(work := self._next_work(), Stop):
                if isinstance(work, Reset):
                    self._clip = None
                elif isinstance(work, Message):
                    self._handle(work)

    def _next_work(self) -> Message | Reset | Stop:
        """Return the scheduler's next message. The clip is encoded while none waits or its share of the time is due."""
        while self._clip is not None and (self._share.due or not self._link.inbox):
            self._advance(self._clip)
        return self._link.inbox.get()

    def _handle(self, message: Message) -> None:
        if isinstance(message.body, DecodePlan):
            self._decode(message, message.body)
        elif isinstance(message.body, EncodeAudio):
            self._start_clip(message, message.body)
        else:
            log.warning("unexpected message", extra={"body": type(message.body).__name__})

    # Decoding --------------------------------------------------------------------------------------------------------

    def _decode(self, message: Message, plan: DecodePlan) -> None:
        sounds, duration, padding = self._executor.decode(plan.items, message.arrays[0])
        self._metrics.padding.inc(padding)
        self._share.decoded(duration)
        self._link.post(lambda: self._deliver(message, plan, sounds, duration))

    def _deliver(self, message: Message, plan: DecodePlan, sounds: list[Array], duration: float) -> None:
        """Send each gateway its audio in one message, then answer the scheduler. Runs in the I/O thread."""
        by_gateway: dict[str, list[tuple[FrameSpan, Array, Array]]] = defaultdict(list)
        codes = np.split(message.arrays[0], np.cumsum([item.frames for item in plan.items])[:-1])
        for item, rows, sound in zip(plan.items, codes, sounds, strict=True):
            heard = min(max(item.heard - item.first, 0), item.frames)
            if heard < item.frames:
                first = item.first + heard
                starts = [start for start in item.turn_starts if start >= first]
                span = FrameSpan(item.request, first, item.frames - heard, starts)
                by_gateway[item.gateway].append((span, rows[heard:], sound[heard * self._executor.hop :]))
        unreachable = []
        for gateway, parts in by_gateway.items():
            spans, rows_of, sounds_of = zip(*parts, strict=True)
            try:
                body = Audio(list(spans), message.source)
                self._send_to_gateway(gateway, body, [np.concatenate(rows_of), *sounds_of])
            except PeerGoneError:
                unreachable.append(gateway)
        self._link.answer_now(message, DecodeDone(plan.call, duration, unreachable, plan.registration))

    def _send_to_gateway(self, gateway: str, body: Audio | Attached, arrays: list[Array]) -> None:
        frames = pack(body, arrays, source=self._process.incarnation, target=gateway)
        transport.send(self._audio, frames, gateway)

    def _on_attach(self) -> None:
        while (frames := transport.receive(self._audio)) is not None:
            self._answer_attach(frames[1:])

    def _answer_attach(self, frames: list[zmq.Frame]) -> None:
        try:
            message = unpack(frames)
            if isinstance(message.body, Attach):
                self._send_to_gateway(message.source, Attached(self._process.incarnation), [])
        except (MessageError, PeerGoneError):
            log.warning("a gateway's attach was not answered", exc_info=True)

    # Encoding --------------------------------------------------------------------------------------------------------

    def _start_clip(self, message: Message, body: EncodeAudio) -> None:
        self._share.start()
        try:
            self._clip = Clip(message, body, self._executor.start_encode(message.arrays[0]))
        except ValueError as error:
            self._metrics.refused.inc()
            failure = Failure(400, "invalid_reference", str(error))
            self._link.answer(message, Encoded(body.request, failure, body.registration))

    def _advance(self, clip: Clip) -> None:
        self._link.inbox.goes_on()
        began = time.monotonic()
        encoded = clip.job.advance()
        self._share.encoded(time.monotonic() - began)
        if encoded:
            self._metrics.encoded.inc()
            self._link.answer(clip.asked, Encoded(clip.body.request, None, clip.body.registration), [clip.job.codes])
            self._clip = None
