"""One HTTP connection: a bound on the wait for its first request, half-closed clients, and malformed requests.

This is the only place that touches private state of the HTTP library's protocol: the number of its requests, and the
request that it is serving.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable
from typing import Any, cast

from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError, HttpVersion11
from aiohttp.http_exceptions import LineTooLong

from gateway.http.errors import ApiError
from gateway.http.response_stream import STARTED

PROBE = b"HTTP/1.1 102 Processing\r\n\r\n"
FIRST_CHECK, LATER_CHECKS = 0.01, 0.1  # seconds


class Connection(web.RequestHandler):
    """The HTTP library's protocol with three changes; see the module."""

    __slots__ = ("_first_request", "_first_request_timeout", "_on_lost")

    def __init__(
        self, server: web.Server, *, first_request_timeout: float, on_lost: Callable[[], None], **options: Any
    ) -> None:
        """``first_request_timeout``: seconds for the head of the first request, after which the connection is cut."""
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._first_request_timeout, self._on_lost = first_request_timeout, on_lost
        self._first_request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        abort = cast(asyncio.Transport, transport).abort
        self._first_request = asyncio.get_running_loop().call_later(self._first_request_timeout, abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._request_count:
            self._stop_waiting()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)
        self._on_lost()

    def _stop_waiting(self) -> None:
        if self._first_request is not None:
            self._first_request.cancel()
            self._first_request = None

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection for the reply to a complete request.

        A client that has gone sends the same signal as one that only stopped sending. Writing tells them apart: a
        client that has gone answers with a reset, which cancels its request. Until the reply begins, interim responses
        are written for that.
        """
        asyncio.get_running_loop().call_later(FIRST_CHECK, self._check)  # by then a request that just came is served
        return True

    def _check(self) -> None:
        """Close the connection if it has no request to reply to, or if its client has gone; else look again later."""
        transport, request = self.transport, self._current_request
        if transport is None or transport.is_closing():
            return
        if request is None or not request.content.is_eof() or hdrs.UPGRADE in request.headers:
            transport.close()
        elif transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            transport.abort()
        else:
            self.close()  # once the reply is sent
            if request.get(STARTED) is None and request.version >= HttpVersion11:
                transport.write(PROBE)
            asyncio.get_running_loop().call_later(LATER_CHECKS, self._check)

    def handle_error(
        self, request: Any, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer a request that the HTTP library can't parse."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size:
            return super().handle_error(request, status, exc, message)
        self.log_exception("Error handling request from %s", request.remote, exc_info=exc)
        response = _error(exc, message).response()
        response.headers["X-Request-Id"] = uuid.uuid4().hex
        response.force_close()
        return response


def _error(exc: HttpProcessingError, message: str | None) -> ApiError:
    problem = (message or exc.message).partition("\n")[0].strip().rstrip(":")
    if isinstance(exc, LineTooLong):
        return ApiError(431, "headers_too_large", f"the head of the request is too large: {problem}")
    return ApiError(400, "bad_request", f"the request is malformed: {problem}")
