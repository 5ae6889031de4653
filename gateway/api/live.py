"""``WS /v1/tts/live``: text streamed in, sound streamed out.

Messages are binary, each a msgpack map.

In: ``start``, then ``text`` and ``flush``, then ``stop``; out: ``audio``, then one ``finish``. The socket is read all
the time, so that a client can break in on what is being said: by closing it, or with a new ``start``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from gateway.access.auth import CLIENT, is_upgrade
from gateway.errors import RequestError, SlowClientError
from gateway.http.body import without_nulls
from gateway.http.errors import ApiError, as_api_error, draining, invalid
from gateway.http.idempotency import SUPERSEDED
from gateway.http.offload import LONG_TO_DECODE, offload
from gateway.schema import fields
from gateway.services import GATEWAY, Gateway
from gateway.speech.live_utterance import Utterance

HEARTBEAT = 20.0  # seconds between pings; a client that answers none is gone
FRAME_BYTES = 128 * 1024  # of sound in one message; even, so that samples stay whole
BROKEN_OFF = "broken off"  # by the server: what a cancellation says for which the client did not leave
CLOSE_SECONDS = 5.0  # for the client's part of closing
POOLING = "livekit-plugins-"  # such clients send their next start on the same socket; others wait for it to close

log = logging.getLogger(__name__)

routes = web.RouteTableDef()


@routes.get("/v1/tts/live")
async def live(request: web.Request) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    if not is_upgrade(request):
        message = "this route is a WebSocket: ask for an upgrade"
        raise ApiError(426, "upgrade_required", message, headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    refusal = _refusal(gateway, request[CLIENT].name)
    if refusal is not None:
        _count_refusal(gateway, refusal)
        raise refusal
    socket = web.WebSocketResponse(
        compress=False,
        heartbeat=HEARTBEAT,
        max_msg_size=gateway.settings.max_body_bytes,
        timeout=CLOSE_SECONDS,
        writer_limit=0,  # then a client that does not read is seen as soon as the kernel's buffer is full
    )
    await socket.prepare(request)
    if request.transport is not None:
        request.transport.set_write_buffer_limits(high=0)
    await Live(gateway, request, socket).serve()
    return socket


def _refusal(gateway: Gateway, client: str) -> ApiError | None:
    """Return the reason not to open another socket for a client, or None."""
    most, most_per_client = gateway.settings.max_live, gateway.settings.max_live_per_client
    if len(gateway.sockets) >= most:
        return ApiError(429, "too_many_sockets", f"{most} sockets are open", retry_after=5)
    if sum(socket.client == client for socket in gateway.sockets) >= most_per_client:
        return ApiError(429, "too_many_sockets", f"{most_per_client} sockets of this client are open", retry_after=5)
    if gateway.engine.unready():
        return ApiError(503, "not_ready", "the server is starting or being restarted", retry_after=2)
    return None


def _count_refusal(gateway: Gateway, error: ApiError) -> None:
    if error.status in (429, 503):
        gateway.metrics.live_refusals.labels(str(error.status)).inc()


class Live:
    """A WebSocket with at most one utterance at a time, from ``start`` to ``finish``."""

    def __init__(self, gateway: Gateway, request: web.Request, socket: web.WebSocketResponse) -> None:
        self._gateway, self._request, self._socket = gateway, request, socket
        self.client = request[CLIENT].name
        self._loop = asyncio.get_running_loop()
        self._utterance: Utterance | None = None  # that takes text, or is still speaking
        self._speaking: asyncio.Task[None] | None = None
        self._waiting: asyncio.Timeout | None = None  # for the next message
        self._farewell: tuple[int, bytes] | None = None  # with which the socket is to be closed
        self._ended = asyncio.Event()
        self._failed = False  # what still comes for the utterance that failed means nothing
        self._active = self._loop.time()

    async def serve(self) -> None:
        """Serve until either side closes the socket."""
        self._gateway.sockets.add(self)
        try:
            if self._gateway.refusing:
                await self.leave()  # it came while the others were told
            while self._farewell is None and not self._socket.closed:
                message = await self._receive()
                if message is None:
                    await self._idle()
                else:
                    self._active = self._loop.time()
                    await self._take(message)
            await self._say_farewell()
        finally:
            self._gateway.sockets.discard(self)
            await self._abort()
            self._ended.set()

    async def leave(self) -> None:
        """Close the socket if it is idle, since the server is shutting down."""
        if self._speaking is None:
            self._close(WSCloseCode.GOING_AWAY, b"the server is shutting down")

    async def cut_off(self) -> None:
        """Break off and close the socket: the drain has run out of time."""
        if self._speaking is not None:
            await self._abort(BROKEN_OFF)
            await self._fail(draining())
        self._close(WSCloseCode.GOING_AWAY, b"the server is shutting down")
        await self._ended.wait()

    # Messages --------------------------------------------------------------------------------------------------------

    async def _take(self, message: WSMessage) -> None:
        if message.type is WSMsgType.BINARY:
            try:
                await self._obey(await offload(len(message.data) > LONG_TO_DECODE, _decode, message.data))
            except ConnectionError:
                raise
            except Exception as error:
                await self._abort(BROKEN_OFF)
                await self._fail(_failure(error))
                self._finished()
        elif message.type is WSMsgType.TEXT:
            await self._abort(BROKEN_OFF)
            await self._fail(ApiError(400, "invalid_msgpack", "messages are binary, each a msgpack map"))
            self._close(WSCloseCode.UNSUPPORTED_DATA, b"messages are binary")

    async def _obey(self, values: dict[Any, Any]) -> None:
        event = values.get("event")
        if event == "start":
            await self._start(values)
        elif event in ("text", "flush", "stop"):
            utterance = self._utterance
            if utterance is None:
                if event == "text" and _text(values).strip() and not self._failed:
                    raise ApiError(400, "not_started", "text came before start, or after stop")
            elif event == "text":
                await utterance.say(_text(values))
            elif event == "flush":
                await utterance.flush()
            else:
                self._utterance = None  # it takes nothing more
                await utterance.stop()

    async def _start(self, values: dict[Any, Any]) -> None:
        await self._abort(SUPERSEDED)
        self._failed = False
        if self._gateway.refusing:
            raise draining()
        asked = values.get("request", {})
        if not isinstance(asked, dict):
            raise invalid("request", "is not a map of fields")
        gateway = self._gateway
        wanted = {**asked, "streaming": True}
        large = "references" in wanted
        speech = await offload(large, fields.parse, wanted, gateway.model, gateway.settings, fields.FISH, True)
        self._utterance = Utterance(gateway, self._request, speech, self._sound)
        self._speaking = asyncio.create_task(self._speak(self._utterance))
        if speech.text:
            await self._utterance.say(speech.text)

    # Speaking --------------------------------------------------------------------------------------------------------

    async def _speak(self, utterance: Utterance) -> None:
        """Run an utterance to its end, in a task of its own."""
        try:
            await utterance.speak()
            await self._send({"event": "finish", "reason": "stop"})
        except ConnectionError:
            return  # the reading side sees it too
        except SlowClientError:
            if self._request.transport is not None:
                self._request.transport.abort()
            return
        except Exception as error:
            self._utterance = None
            await self._fail(_failure(error))
        self._speaking = None
        self._finished()

    async def _sound(self, data: bytes) -> None:
        for begin in range(0, len(data), FRAME_BYTES):
            await self._send({"event": "audio", "audio": data[begin : begin + FRAME_BYTES]})
        self._active = self._loop.time()

    async def _abort(self, why: str | None = None) -> None:
        """Break off the current utterance. ``why`` is for the metrics; None: the client has gone."""
        self._utterance = None
        task, self._speaking = self._speaking, None
        if task is not None and task is not asyncio.current_task():
            task.cancel(why)
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await task

    # The socket ------------------------------------------------------------------------------------------------------

    async def _fail(self, error: ApiError) -> None:
        """Send an error and ``finish``. Most clients look at ``finish`` only; the error event has the details."""
        self._failed = True
        _count_refusal(self._gateway, error)
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._send({"event": "error", "error": error.message, "status": error.status, "code": error.code})
                await self._send({"event": "finish", "reason": "error", "message": error.message})

    async def _send(self, values: dict[str, Any]) -> None:
        await self._socket.send_bytes(msgspec.msgpack.encode(values))

    def _finished(self) -> None:
        """Close or keep the socket after ``finish``: some clients wait for the close, others reuse the socket."""
        policy = self._gateway.settings.live_after_finish
        keep = policy == "keep" or (
            policy == "auto" and self._request.headers.get("User-Agent", "").startswith(POOLING)
        )
        if self._gateway.draining:
            self._close(WSCloseCode.GOING_AWAY, b"the server is shutting down")
        elif not keep:
            self._close(WSCloseCode.OK, b"")

    def _close(self, code: int, message: bytes) -> None:
        """Ask the reading task to close the socket.

        Only there does aiohttp wait for the client's part. Else the connection would end at once, what the client still
        sends would be answered with a reset, and by that it might lose what it has not read yet.
        """
        self._farewell = self._farewell or (code, message)
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(self._loop.time())

    async def _receive(self) -> WSMessage | None:
        """Receive the next message; None after an idle timeout, or if the socket is to be closed."""
        try:
            async with asyncio.timeout(self._patience()) as self._waiting:
                return await self._socket.receive()
        except TimeoutError:
            return None
        finally:
            self._waiting = None

    async def _say_farewell(self) -> None:
        if self._farewell is not None:
            code, message = self._farewell
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(2 * CLOSE_SECONDS):
                    await self._socket.close(code=code, message=message)

    def _patience(self) -> float:
        return max(0.01, self._active + self._gateway.settings.live_idle_timeout - self._loop.time())

    async def _idle(self) -> None:
        """Handle an idle timeout; sound that was sent meanwhile counts as activity."""
        if self._loop.time() - self._active < self._gateway.settings.live_idle_timeout:
            return
        if self._speaking is not None:
            await self._abort(BROKEN_OFF)
            await self._fail(ApiError(408, "idle", "no text for too long", reason="timeout"))
        self._close(WSCloseCode.OK, b"idle")


def _failure(error: Exception) -> ApiError:
    """Convert whatever went wrong to the error for the client."""
    if isinstance(error, RequestError):
        return as_api_error(error)
    log.error("an utterance failed", exc_info=error)
    return ApiError(500, "internal_error", "internal error")


def _decode(data: bytes) -> dict[Any, Any]:
    try:
        values = msgspec.msgpack.decode(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "invalid_msgpack", f"a message is not msgpack: {error}") from None
    if not isinstance(values, dict):
        raise ApiError(400, "invalid_msgpack", "a message is not a map")
    return without_nulls(values)


def _text(values: dict[Any, Any]) -> str:
    text = values.get("text", "")
    if not isinstance(text, str):
        raise invalid("text", "is not a string")
    return text
