"""Connection limits: bounds on open connections, in all and from one address."""

from __future__ import annotations

import asyncio
import math
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from aiohttp import web

from gateway.http.connection import Connection
from gateway.http.errors import ApiError
from gateway.http.proxies import is_trusted

OTHER_FILES = 256  # that the process may have open
MAX_REFUSALS = 128  # at a time; beyond, the oldest is cut off
REFUSAL_SECONDS = 1.0  # for a client to begin its request, so that it gets to read the answer

Probe: TypeAlias = Callable[[str], tuple[int, bytes] | None]
"""Answers a health check, given by its path: status and JSON body; None for any other path."""


def allow_files(connections: int) -> None:
    """Raise the limit of open files for so many connections, as far as the system allows: shells
    often begin at 1024 files, or at 256."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (math.inf if limit == resource.RLIM_INFINITY else limit for limit in limits)
    wanted = min(connections + OTHER_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(wanted), limits[1]))


class Bounds(NamedTuple):
    """Bounds of a listener: connections in all and from one address, and seconds for the first request of each.

    ``proxies``: addresses and networks without a bound of their own.
    """

    connections: int
    per_address: int
    first_request: float
    proxies: tuple[str, ...] = ()


class Connections:
    """Protocol factory: the web server's protocol, or a refusal beyond the bounds."""

    def __init__(self, server: web.Server, bounds: Bounds, probe: Probe, **options: Any) -> None:
        """``options``: of :class:`Connection`."""
        self._server, self._bounds, self._probe, self._options = server, bounds, probe, options
        self._addresses: Counter[str] = Counter()
        self._refusals: dict[_Refusal, None] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._server.connections)

    def __call__(self) -> asyncio.BaseProtocol:
        return _Admission(self._admit)

    def _admit(self, address: str) -> asyncio.Protocol:
        """Return the protocol for a connection from an address."""
        if len(self) >= self._bounds.connections:
            return self._refuse(f"{self._bounds.connections} connections are open")
        many = self._addresses[address] >= self._bounds.per_address
        if many and not is_trusted(address, self._bounds.proxies):
            return self._refuse(f"{self._bounds.per_address} connections from {address} are open")
        self._addresses[address] += 1
        seconds = self._bounds.first_request
        leave = partial(self._leave, address)
        return Connection(self._server, first_request_timeout=seconds, on_lost=leave, **self._options)

    def _refuse(self, message: str) -> asyncio.Protocol:
        if len(self._refusals) >= MAX_REFUSALS:
            next(iter(self._refusals)).abort()
        error = ApiError(503, "too_many_connections", message, retry_after=5)
        refusal = _Refusal(error, self._probe, lambda: self._refusals.pop(refusal, None))
        self._refusals[refusal] = None
        return refusal

    def _leave(self, address: str) -> None:
        self._addresses[address] -= 1
        if not self._addresses[address]:
            del self._addresses[address]


class _Admission(asyncio.Protocol):
    """Protocol of a new connection, which gives way to another as soon as the client's address is known."""

    def __init__(self, admit: Callable[[str], asyncio.Protocol]) -> None:
        self._admit = admit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        protocol = self._admit(peer[0] if peer else "")
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


class _Refusal(asyncio.Protocol):
    """Protocol that answers a request with an error and closes; health checks get the truth."""

    def __init__(self, error: ApiError, probe: Probe, on_lost: Callable[[], object]) -> None:
        self._error, self._probe, self._on_lost = error, probe, on_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(REFUSAL_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._answer(data))
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._on_lost()

    def abort(self) -> None:
        """End the connection without an answer."""
        self._transport.abort()
        self._on_lost()

    def _answer(self, data: bytes) -> bytes:
        method, _, rest = data.partition(b" ")
        health = self._probe(rest.partition(b" ")[0].decode("latin-1")) if method == b"GET" else None
        return _message(*health) if health else _message(self._error.status, self._error.body, self._error.headers)


def _message(status: int, body: bytes, others: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Serialize a JSON reply as an HTTP/1.1 response that ends the connection."""
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in (headers | dict(others)).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
