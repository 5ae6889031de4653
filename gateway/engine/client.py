"""The gateway's side of the engine: requests go in, sound or codes come out, whoever computes them.

One connection to the scheduler and one to each vocoder worker, read from the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import numpy as np

from common import transport
from common.config import ConfigError, worker_names
from common.messages import (
    PROMPT_ROWS,
    AnyBody,
    Array,
    Attach,
    Attached,
    Audio,
    Cancel,
    Codes,
    Credit,
    Disowned,
    EncodeAudio,
    Encoded,
    Ended,
    Extend,
    Failure,
    FinishReason,
    GatewayHello,
    GroupState,
    Message,
    Ping,
    Pong,
    Rested,
    Submit,
    Vocode,
    VocoderAddress,
    Welcome,
)
from common.process import Process
from common.transport import SCHEDULER, Context, PeerGoneError
from gateway.engine.link import Link
from gateway.engine.streams import Stream
from gateway.engine.wakeups import Wakes
from gateway.errors import RequestError

log = logging.getLogger(__name__)

RESUBMIT_SECONDS = 20.0  # for which a request that had not begun waits for a new scheduler
CREDIT_SECONDS = 0.01  # for which what clients have read is gathered, next to seconds that may be unread
SCHEDULER_LOST = Failure(503, "scheduler_lost", "the scheduler of this request was lost", retry_after=2)


class EngineError(RequestError):
    """The engine refused a request or failed; ``failure`` is what the client is told."""

    def __init__(self, failure: Failure) -> None:
        rejected = failure.status < 500
        reason: FinishReason = "rejected" if rejected else "error"
        param = "text" if failure.code == "context_length_exceeded" else None
        super().__init__("invalid" if rejected else "internal", failure.code, failure.message, param, reason)
        self.failure = failure


class Engine:
    """Requests of this gateway, and the state of the group as the scheduler tells it."""

    def __init__(self, process: Process, context: Context) -> None:
        self._process = process
        self._context = context
        self._streams: dict[str, Stream] = {}
        self._asked: dict[str, tuple[Submit | Vocode, Array]] = {}  # what each stream came from
        self._unasked: set[str] = set()  # of these, whose scheduler was lost before anything came
        self._encodes: dict[str, asyncio.Future[Array]] = {}
        self._credits: dict[str, int] = {}
        self._wakes = Wakes()
        self._state: GroupState | None = None
        self._heard: float | None = None  # the scheduler's last ping
        self._vocoders: dict[str, Link] = {}  # by incarnation
        self._attached: set[str] = set()
        endpoint = transport.scheduler_endpoint(process.config)
        self._scheduler = Link(
            context, endpoint, SCHEDULER, process.incarnation, self._on_scheduler, self._on_scheduler_message
        )

    # What the doors use ----------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Requests under way."""
        return len(self._streams) + len(self._encodes)

    @property
    def waiting(self) -> int:
        """Speech requests under way of which nothing has come yet."""
        return sum(not stream.begun for stream in self._streams.values())

    def queues(self) -> dict[str, float]:
        """For how many streams sound has come that their readers were not yet woken for, by link."""
        return {"from_vocoders": len(self._wakes)}

    def ages(self) -> dict[str, float]:
        """Seconds since the scheduler was last heard, if it ever was."""
        return {} if self._heard is None else {"scheduler": time.monotonic() - self._heard}

    def unready(self) -> dict[str, str]:
        """Why the group can't serve, process to reason; empty when it can."""
        if not self._scheduler.peer or self._state is None:
            return {"scheduler": "not connected"}
        reasons = {name: state for name, state in self._state.processes.items() if state != "ready"}
        own = {name for name, _ in worker_names(self._process.config)}  # those from elsewhere are used once they can be
        if any(one.name in own and one.incarnation not in self._attached for one in self._state.vocoders):
            reasons["gateway"] = "not yet connected to each vocoder worker"
        return reasons if reasons or self._state.ready else {"scheduler": "not ready"}

    def submit(self, body: Submit, prompt: Array) -> Stream:
        """Start a request. ``prompt``: int32 [11, positions]. Close the stream when done with it, whatever happened.

        Raises:
            EngineError: the scheduler is not there.
        """
        self._tell(body, [prompt])
        self._asked[body.request] = body, prompt
        stream = Stream(body.request, body.output, self._give_credit, self._close, self._extend)
        stream.prompt_tokens = sum(body.turns)
        self._streams[body.request] = stream
        return stream

    def submit_codes(self, request: str, client: str, codes: Array) -> Stream:
        """Make sound of codes, int16 [10, frames]. Close the stream when done with it, whatever happened.

        Raises:
            EngineError: the scheduler is not there.
        """
        body = Vocode(request, client)
        self._tell(body, [codes.T])
        self._asked[request] = body, codes.T
        stream = self._streams[request] = Stream(request, "audio", self._give_credit, self._close, self._extend)
        return stream

    async def encode(self, request: str, samples: Array) -> Array:
        """Codes int16 [10, frames] of reference audio. ``samples``: float32 [samples] at the codec's rate.

        Raises:
            EngineError: the engine refused or failed.
        """
        self._tell(EncodeAudio(request), [samples])
        future = self._encodes[request] = asyncio.get_running_loop().create_future()
        try:
            return await future
        finally:
            del self._encodes[request]

    def close(self) -> None:
        for link in (self._scheduler, *self._vocoders.values()):
            link.close()

    # To the scheduler ------------------------------------------------------------------------------------------------

    def _tell(self, body: AnyBody, arrays: Sequence[Array] = ()) -> None:
        try:
            if self._scheduler.peer:
                self._scheduler.send(body, arrays)
                return
        except PeerGoneError:
            pass
        raise EngineError(Failure(503, "not_ready", "the scheduler is starting or being restarted", retry_after=2))

    def _try_tell(self, body: AnyBody, arrays: Sequence[Array] = ()) -> None:
        """Say what a lost scheduler needn't hear."""
        try:
            self._tell(body, arrays)
        except EngineError:
            log.debug("not sent: no scheduler", extra={"body": type(body).__name__})

    def _give_credit(self, request: str, frame: int) -> None:
        if not self._credits:
            asyncio.get_running_loop().call_later(CREDIT_SECONDS, self._send_credits)
        self._credits[request] = frame

    def _send_credits(self) -> None:
        self._try_tell(Credit(list(self._credits.items())))
        self._credits.clear()

    def _extend(self, request: str, prompts: list[Array], last: bool) -> None:
        turns = [prompt.shape[1] for prompt in prompts]
        nothing = np.zeros((PROMPT_ROWS, 0), np.int32)
        self._try_tell(Extend(request, turns, last), [np.concatenate([nothing, *prompts], axis=1)])

    def _close(self, request: str, reason: FinishReason | None) -> None:
        """A stream is done with; ``reason`` when the engine is not."""
        self._asked.pop(request, None)
        self._wakes.forget(request)
        if self._streams.pop(request, None) is not None and reason is not None:
            self._try_tell(Cancel(request, reason))

    # When the scheduler is lost --------------------------------------------------------------------------------------

    def _put_off(self) -> None:
        """Requests that had begun end with an error; the others are asked again of the next scheduler."""
        for stream in list(self._streams.values()):
            body, _ = self._asked[stream.request]
            if stream.begun or (isinstance(body, Submit) and body.open):
                stream.end(Ended(stream.request, "error", 0, SCHEDULER_LOST))
            else:
                self._unasked.add(stream.request)
        if self._unasked:
            asyncio.get_running_loop().call_later(RESUBMIT_SECONDS, self._give_up, frozenset(self._unasked))

    def _ask_again(self) -> None:
        """What was put off, once there is a group that can serve it."""
        if not self._unasked or self.unready():
            return
        for request in self._unasked & self._asked.keys():
            body, array = self._asked[request]
            self._try_tell(body, [array])
        self._unasked.clear()

    def _give_up(self, requests: frozenset[str]) -> None:
        """No scheduler came in time."""
        for request in requests & self._unasked & self._streams.keys():
            self._streams[request].end(Ended(request, "error", 0, SCHEDULER_LOST))
        self._unasked -= requests

    # From the scheduler ----------------------------------------------------------------------------------------------

    def _on_scheduler(self, link: Link, connected: bool) -> None:
        if connected:
            link.peer = ""
            link.try_send(GatewayHello(self._process.name))
            return
        link.peer, self._state = "", None
        self._put_off()
        for future in self._encodes.values():
            if not future.done():
                future.set_exception(EngineError(SCHEDULER_LOST))

    def _on_scheduler_message(self, link: Link, message: Message) -> None:
        body = message.body
        if isinstance(body, Welcome):
            link.peer = message.source
        elif isinstance(body, Disowned):
            if link.peer:  # else it is registering already: another hello would end that registration
                self._on_scheduler(link, connected=False)
                self._on_scheduler(link, connected=True)
        elif message.source != link.peer:
            return
        elif isinstance(body, Ping):
            self._heard = time.monotonic()
            link.try_send(Pong())
        elif isinstance(body, Codes):
            self._on_codes(body, message.arrays[0])
        elif isinstance(body, Rested):
            if body.request in self._streams:
                self._streams[body.request].rest(body)
        elif isinstance(body, Ended):
            if body.request in self._streams:
                self._streams[body.request].end(body)
        elif isinstance(body, Encoded):
            self._on_encoded(body, message.arrays)
        elif isinstance(body, GroupState):
            self._on_state(body)

    def _on_codes(self, body: Codes, codes: Array) -> None:
        offset = 0
        for span in body.spans:
            if (stream := self._streams.get(span.request)) is not None:
                stream.add(span, codes[offset : offset + span.frames])
                stream.changed.set()
            offset += span.frames

    def _on_encoded(self, body: Encoded, arrays: list[Array]) -> None:
        future = self._encodes.get(body.request)
        if future is None or future.done():
            return
        if body.failure is not None:
            future.set_exception(EngineError(body.failure))
        else:
            future.set_result(arrays[0])

    def _on_state(self, state: GroupState) -> None:
        self._state = state
        for incarnation in set(self._vocoders) - {address.incarnation for address in state.vocoders}:
            self._attached.discard(incarnation)
            self._vocoders.pop(incarnation).close()
        for address in state.vocoders:
            if address.incarnation in self._attached:
                self._try_tell(Attached(address.incarnation))
            elif address.incarnation not in self._vocoders:
                self._connect(address)
        self._ask_again()

    def _connect(self, address: VocoderAddress) -> None:
        """To a vocoder worker. One whose key is not known here leaves this gateway unready."""
        mine = self._process.incarnation
        try:
            link = Link(self._context, address.endpoint, address.name, mine, self._on_vocoder, self._on_sound)
        except ConfigError as error:
            log.error("not connected to a vocoder worker: %s", error)
            return
        link.peer = address.incarnation
        self._vocoders[address.incarnation] = link

    # From vocoder workers --------------------------------------------------------------------------------------------

    def _on_vocoder(self, link: Link, connected: bool) -> None:
        if connected:
            link.try_send(Attach())
        else:
            self._attached.discard(link.peer)

    def _on_sound(self, link: Link, message: Message) -> None:
        if message.source != link.peer:
            return
        if isinstance(message.body, Attached):
            self._attached.add(link.peer)
            self._try_tell(Attached(link.peer))
            self._ask_again()
        elif isinstance(message.body, Audio):
            for span, samples in zip(message.body.spans, message.arrays, strict=True):
                if (stream := self._streams.get(span.request)) is not None:
                    stream.add(span, samples)
                    self._wakes.add(stream, first=span.first == 0)
