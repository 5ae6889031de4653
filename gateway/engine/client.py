"""Engine client: requests go in, sound or codes come out.

One connection to the scheduler and one to each vocoder worker, read from the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Literal

from common import transport
from common.config import worker_names
from common.messages import (
    AnyBody,
    Array,
    Attached,
    Audio,
    Cancel,
    Codes,
    Credit,
    Detached,
    Disowned,
    Encoded,
    Ended,
    Extend,
    FinishReason,
    FrameSpan,
    GatewayHello,
    GroupState,
    Message,
    Ping,
    Pong,
    Rested,
    Submit,
    Vocode,
    Welcome,
)
from common.process import Process
from common.transport import SCHEDULER, Context, PeerGoneError
from gateway.engine.encodes import Encodes
from gateway.engine.errors import INTERNAL_ERROR, NOT_READY, EngineError
from gateway.engine.link import Link
from gateway.engine.metrics import EngineMetrics
from gateway.engine.recovery import Recovery
from gateway.engine.requests import OpenRequest, joined
from gateway.engine.streams import Stream
from gateway.engine.vocoder_links import VocoderLinks
from gateway.engine.wakeups import ReaderWakeups

log = logging.getLogger(__name__)

CREDIT_SECONDS = 0.01  # for which credit is collected: short next to the sound that may be unread


class Engine:
    """The open requests of this gateway, and the state of the group as the scheduler reports it."""

    def __init__(self, process: Process, context: Context) -> None:
        self._process = process
        self._context = context
        self._settings = process.config.scheduler
        self._requests: dict[str, OpenRequest] = {}
        self._credits: dict[str, int] = {}
        self._wakeups = ReaderWakeups()
        self._state: GroupState | None = None
        self._heard: float | None = None  # when the scheduler was heard last
        self._silence: asyncio.TimerHandle | None = None
        self._vocoders = VocoderLinks(context, process.incarnation, self._on_attached, self._on_audio)
        metrics = EngineMetrics(process.registry)
        seconds = self._settings.recovery_seconds
        self._recovery = Recovery(self._requests, self._try_send, metrics, seconds)
        self._encodes = Encodes(self._send, seconds)
        endpoint = transport.scheduler_endpoint(process.config)
        self._scheduler = Link(
            context, endpoint, SCHEDULER, process.incarnation, self._on_scheduler, self._on_scheduler_message
        )

    # For the API ------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Open requests."""
        return len(self._requests) + len(self._encodes)

    @property
    def waiting(self) -> int:
        """Open speech requests of which no frame has come."""
        return sum(not request.stream.begun for request in self._requests.values())

    def queues(self) -> dict[str, float]:
        """Streams whose sound has come and whose readers have yet to be woken, by link."""
        return {"from_vocoders": len(self._wakeups)}

    def ages(self) -> dict[str, float]:
        """Seconds since the scheduler was last heard, if it ever was."""
        return {} if self._heard is None else {"scheduler": time.monotonic() - self._heard}

    def unready(self) -> dict[str, str]:
        """Reasons why the group can't serve, by process; empty if it can."""
        if not self._scheduler.peer or self._state is None:
            return {"scheduler": "not connected"}
        if self.ages().get("scheduler", 0.0) > self._settings.worker_timeout:
            return {"scheduler": "silent"}
        reasons = {name: state for name, state in self._state.processes.items() if state != "ready"}
        own = {name for name, _ in worker_names(self._process.config)}  # workers from elsewhere need not be there
        if any(one.name in own and one.incarnation not in self._vocoders.attached for one in self._state.vocoders):
            reasons["gateway"] = "not yet connected to each vocoder worker"
        return reasons if reasons or self._state.ready else {"scheduler": "not ready"}

    def submit(self, body: Submit, prompt: Array) -> Stream:
        """Start a request. ``prompt``: int32 [11, positions]. Close the stream in any case.

        Raises:
            EngineError: the scheduler is not there.
        """
        stream = self._open(body, prompt, body.output)
        stream.prompt_tokens = sum(body.turns)
        return stream

    def submit_codes(self, request: str, client: str, codes: Array) -> Stream:
        """Make sound of codes, int16 [10, frames]. Close the stream in any case.

        Raises:
            EngineError: the scheduler is not there.
        """
        return self._open(Vocode(request, client), codes.T, "audio")

    def _open(self, body: Submit | Vocode, array: Array, output: Literal["audio", "codes"]) -> Stream:
        self._send(body, [array])
        hole = self._recovery.hole
        stream = Stream(body.request, output, self._give_credit, self._close, self._extend, hole)
        self._requests[body.request] = OpenRequest(body, array, stream, self._scheduler.peer)
        return stream

    async def encode(self, request: str, samples: Array) -> Array:
        """Codes int16 [10, frames] of reference audio. ``samples``: float32 [samples] at the codec's rate.

        Raises:
            EngineError: the engine refused or failed.
        """
        return await self._encodes.encode(request, samples)

    def close(self) -> None:
        self._scheduler.close()
        self._vocoders.close()

    # To the scheduler ------------------------------------------------------------------------------------------------

    def _send(self, body: AnyBody, arrays: Sequence[Array] = ()) -> None:
        try:
            if self._scheduler.peer:
                self._scheduler.send(body, arrays)
                return
        except PeerGoneError:
            pass
        raise EngineError(NOT_READY)

    def _try_send(self, body: AnyBody, arrays: Sequence[Array] = ()) -> None:
        """Send, unless the scheduler is lost, which is noticed separately."""
        try:
            self._send(body, arrays)
        except EngineError:
            log.debug("not sent: no scheduler", extra={"body": type(body).__name__})

    def _give_credit(self, request: str, frame: int) -> None:
        if not self._credits:
            asyncio.get_running_loop().call_later(CREDIT_SECONDS, self._send_credits)
        self._credits[request] = frame

    def _send_credits(self) -> None:
        self._try_send(Credit(list(self._credits.items())))
        self._credits.clear()

    def _extend(self, request: str, prompts: list[Array], last: bool) -> None:
        turns, prompt = [prompt.shape[1] for prompt in prompts], joined(prompts)
        if request in self._requests:
            self._requests[request].extend(turns, prompt, last)
        self._try_send(Extend(request, turns, last), [prompt])

    def _close(self, request: str, reason: FinishReason | None) -> None:
        """A stream is closed; ``reason``: why, if the engine has not ended it."""
        self._wakeups.forget(request)
        closed = self._requests.pop(request, None)
        if closed is None:
            return
        if reason is not None or closed.resumed or closed.stream.failed:  # a scheduler may still work on it
            self._try_send(Cancel(request, reason or "cancelled"))

    # From the scheduler ----------------------------------------------------------------------------------------------

    def _on_scheduler(self, link: Link, connected: bool) -> None:
        if connected:
            link.peer = ""
            link.try_send(GatewayHello(self._process.name))
            return
        if link.peer:
            log.warning("lost the scheduler")
        link.peer, self._state = "", None
        self._recovery.suspend()
        self._encodes.suspend()

    def _on_silence(self) -> None:
        """The scheduler is connected and says nothing."""
        log.error("the scheduler is silent")
        self._recovery.fail(list(self._requests))

    def _on_ping(self) -> None:
        self._heard = time.monotonic()
        self._recovery.watch()
        if self._silence is not None:
            self._silence.cancel()
        seconds = self._settings.worker_timeout + self._settings.recovery_seconds
        self._silence = asyncio.get_running_loop().call_later(seconds, self._on_silence)

    def _on_scheduler_message(self, link: Link, message: Message) -> None:
        body = message.body
        if isinstance(body, Welcome):
            link.peer = message.source
            self._on_ping()
        elif isinstance(body, Disowned):
            if link.peer:  # else it is registering already: another hello would end that registration
                self._on_scheduler(link, connected=False)
                self._on_scheduler(link, connected=True)
        elif message.source != link.peer:
            return
        elif isinstance(body, Ping):
            self._on_ping()
            link.try_send(Pong())
        elif isinstance(body, Codes):
            self._on_codes(body, message.arrays[0])
        elif isinstance(body, Rested):
            if body.request in self._requests:
                self._requests[body.request].stream.rest(body)
        elif isinstance(body, Ended):
            if body.request in self._requests:
                self._recovery.progressed(self._requests[body.request])
                self._requests[body.request].stream.end(body)
        elif isinstance(body, Encoded):
            self._encodes.finish(body, message.arrays)
        elif isinstance(body, Detached):
            self._vocoders.attach_again(body.vocoder)
        elif isinstance(body, GroupState):
            self._on_state(body)

    def _on_codes(self, body: Codes, codes: Array) -> None:
        offset = 0
        for span in body.spans:
            if (request := self._requests.get(span.request)) is not None:
                rows = codes[offset : offset + span.frames]
                self._add(request, span, rows, rows)
                request.stream.changed.set()
            offset += span.frames

    def _on_state(self, state: GroupState) -> None:
        self._state = state
        for vocoder in self._vocoders.update(state):
            self._recovery.vocoder_lost(vocoder)
        for vocoder in self._vocoders.attached:
            self._try_send(Attached(vocoder))
        self._take_over()

    def _take_over(self) -> None:
        """Once the group can serve, have it continue what an earlier scheduler left."""
        if self.unready():
            return
        self._recovery.take_over(self._scheduler.peer)
        self._encodes.take_over()

    # From vocoder workers --------------------------------------------------------------------------------------------

    def _on_attached(self, vocoder: str) -> None:
        self._try_send(Attached(vocoder))
        self._recovery.connected(vocoder)
        self._take_over()

    def _on_audio(self, vocoder: str, body: Audio, arrays: list[Array]) -> None:
        codes, *sounds = arrays
        offset = 0
        for span, samples in zip(body.spans, sounds, strict=True):
            request = self._requests.get(span.request)
            if request is not None and request.scheduler == body.scheduler:  # else another one makes these frames
                request.vocoder = vocoder
                self._add(request, span, samples, codes[offset : offset + span.frames])
                self._wakeups.add(request.stream, first=span.first == 0)
            offset += span.frames

    def _add(self, request: OpenRequest, span: FrameSpan, data: Array, codes: Array) -> None:
        """Add frames to a stream. What is wrong with them ends this stream alone."""
        try:
            if request.stream.add(span, data, codes):
                self._recovery.progressed(request)
        except Exception:
            log.exception("a stream failed", extra={"request": request.id})
            request.stream.end(Ended(request.id, "error", request.stream.received, INTERNAL_ERROR))
