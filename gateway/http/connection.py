"""One HTTP connection: half-closed clients are served, and malformed requests get the usual error body.

This is the only place that touches private state of the HTTP library's protocol: the request that it is serving.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError, HttpVersion11
from aiohttp.http_exceptions import LineTooLong

from gateway.http.errors import ApiError
from gateway.http.response_stream import STARTED

PROBE = b"HTTP/1.1 102 Processing\r\n\r\n"
FIRST_CHECK, LATER_CHECKS = 0.01, 0.1  # seconds


class Connection(web.RequestHandler):
    """The HTTP library's protocol with two changes; see the module."""

    __slots__ = ()

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
