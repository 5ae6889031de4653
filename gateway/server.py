"""The server: listening socket, web server, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from aiohttp import web
from aiohttp.log import server_logger

from gateway.app import make_app
from gateway.http.connections import Connections
from gateway.http.protocol_errors import MalformedRequests
from gateway.http.request_path import tidying
from gateway.services import Gateway

BACKLOG = 1024
HEAD_BYTES = 32 * 1024  # of the request line, and of all headers: cookies of a whole host may come along
MAX_HEADERS = 256
SEND_BUFFER_BYTES = 128 * 1024  # small, so that a client that stops reading is noticed early
CANCEL_SECONDS = 0.5  # for handlers that are cut off at the end


class Server:
    """A listening gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.address = ""
        self._gateway = gateway
        self._listening: asyncio.Server | None = None
        server_logger.addFilter(MalformedRequests())
        self._runner = web.AppRunner(
            make_app(gateway),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=CANCEL_SECONDS,
        )

    async def start(self, host: str, port: int) -> None:
        """Bind and serve at :attr:`address`.

        Raises:
            OSError: the address can't be bound.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # accepted sockets inherit it
        listener.setblocking(False)
        await self._runner.setup()
        assert self._runner.server is not None, "it is set up"
        server, settings = self._runner.server, self._gateway.settings
        server.request_factory = tidying(server.request_factory)
        connections = Connections(
            server,
            settings.max_connections,
            access_log=None,
            keepalive_timeout=settings.keepalive_timeout,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )
        self._gateway.metrics.connections.set_function(lambda: len(connections))
        self._listening = await asyncio.get_running_loop().create_server(connections, sock=listener, backlog=BACKLOG)
        name = f"[{host}]" if family == socket.AF_INET6 else host
        self.address = f"{name}:{listener.getsockname()[1]}"

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
        if self._listening is not None:
            self._listening.close()
        try:
            await self._runner.cleanup()
        finally:  # also when it is not waited for any longer
            self._gateway.close()
