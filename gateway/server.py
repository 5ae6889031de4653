"""The server: a listener for clients, one for operators, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

from aiohttp.log import server_logger

from gateway.api import health
from gateway.app import make_app, make_operators_app
from gateway.http.connections import Bounds
from gateway.http.listener import Listener
from gateway.http.protocol_errors import MalformedRequests
from gateway.services import Gateway

OPERATORS_CONNECTIONS = 64


class Server:
    """A listening gateway."""

    def __init__(self, gateway: Gateway) -> None:
        settings = gateway.settings
        self._gateway = gateway
        server_logger.addFilter(MalformedRequests())
        keepalive, first = settings.keepalive_timeout, settings.first_request_timeout
        bounds = Bounds(
            settings.max_connections, settings.max_connections_per_address, first, tuple(settings.trusted_proxies)
        )
        probe = partial(health.probe, gateway)
        self._clients = Listener(make_app(gateway), bounds, probe, keepalive)
        own = Bounds(OPERATORS_CONNECTIONS, OPERATORS_CONNECTIONS, first)
        self._operators = Listener(make_operators_app(gateway), own, probe, keepalive)

    @property
    def address(self) -> str:
        """Address for clients."""
        return self._clients.address

    @property
    def admin_address(self) -> str:
        """Address for operators: health, metrics and debugging, without API keys and the bounds of clients."""
        return self._operators.address

    async def start(self, host: str, port: int, admin_host: str = "127.0.0.1", admin_port: int = 0) -> None:
        """Bind and serve at :attr:`address` and :attr:`admin_address`.

        Raises:
            OSError: an address can't be bound.
        """
        await self._operators.start(admin_host, admin_port)
        await self._clients.start(host, port)
        self._gateway.metrics.connections.set_function(lambda: self._clients.connections)

    async def drain(self, seconds: float, grace: float = 0.0) -> None:
        """Drain: turn unready, refuse new requests after a grace period, and wait with a bound for running ones."""
        gateway = self._gateway
        gateway.draining = True
        await asyncio.sleep(grace)
        gateway.refusing = True
        await asyncio.gather(*(socket.leave() for socket in list(gateway.sockets)))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gateway.idle.wait(), seconds)

    async def close(self) -> None:
        """Stop listening and break off what still runs."""
        try:
            await self._clients.close()
            await self._operators.close()
        finally:  # also when it is not waited for any longer
            self._gateway.close()
