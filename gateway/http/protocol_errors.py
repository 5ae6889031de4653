"""Requests that HTTP itself forbids: expectations that can't be met, and malformed request lines and headers."""

from __future__ import annotations

import logging

from aiohttp import hdrs, web
from aiohttp.http import HttpProcessingError, HttpVersion11

from common.logs import Throttle
from gateway.http.errors import ApiError

UNMET = web.RequestKey("unmet_expectation", str)

log = logging.getLogger(__name__)


async def expect(request: web.Request) -> None:
    """The ``expect_handler`` of every route: 100-continue is met, and anything else noted for :func:`check`."""
    expectation = request.headers.get(hdrs.EXPECT, "")
    if request.version != HttpVersion11:
        return
    if expectation.lower() != "100-continue":
        request[UNMET] = expectation
        return
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the reply itself has not begun


def check(request: web.Request) -> None:
    """Refuse a request whose expectation can't be met.

    Raises:
        ApiError: 417.
    """
    if UNMET in request:
        message = f"Expect: {request[UNMET]!r} is not supported, 100-continue is"
        raise ApiError(417, "expectation_failed", message, headers={"Connection": "close"})


class MalformedRequests(logging.Filter):
    """Filter of the HTTP library's logger: a malformed request is the client's fault, and worth a line at most."""

    def __init__(self) -> None:
        super().__init__()
        self._throttle = Throttle()

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if not isinstance(error, HttpProcessingError):
            return True
        if self._throttle.due():
            log.info("malformed request", extra={"cause": error.message})
        return False
