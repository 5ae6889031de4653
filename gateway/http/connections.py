"""Connection limit: a bound on simultaneously open connections."""

from __future__ import annotations

import asyncio
import math
import resource
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web

from gateway.http.connection import Connection
from gateway.http.errors import ApiError

OTHER_FILES = 256  # that the process may have open
REFUSAL_SECONDS = 1.0  # for a client to begin its request, so that it gets to read the answer


def allow_files(connections: int) -> None:
    """Raise the limit of open files for so many connections, as far as the system allows: shells
    often begin at 1024 files, or at 256."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (math.inf if limit == resource.RLIM_INFINITY else limit for limit in limits)
    wanted = min(connections + OTHER_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(wanted), limits[1]))


class Connections:
    """Protocol factory: the web server's protocol, or a refusal beyond ``most`` connections."""

    def __init__(self, server: web.Server, most: int, **options: Any) -> None:
        """``options``: of :class:`Connection`."""
        self._server, self._most, self._options = server, most, options

    def __len__(self) -> int:
        return len(self._server.connections)

    def __call__(self) -> asyncio.BaseProtocol:
        if len(self) >= self._most:
            return _Refusal(self._most)
        return Connection(self._server, loop=asyncio.get_running_loop(), **self._options)


class _Refusal(asyncio.Protocol):
    """Protocol that answers any request with an error and closes."""

    def __init__(self, most: int) -> None:
        self._error = ApiError(503, "too_many_connections", f"{most} connections are open", retry_after=5)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(REFUSAL_SECONDS, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(_message(self._error))
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()


def _message(error: ApiError) -> bytes:
    """Serialize an error as an HTTP/1.1 response."""
    headers = {"Content-Type": "application/json", "Content-Length": str(len(error.body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (headers | error.headers).items()]
    return "\r\n".join([*lines, "", ""]).encode() + error.body
