"""Listeners: a web application on one address, with bounds on connections and request heads."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from gateway.http.connections import Bounds, Connections, Probe
from gateway.http.request_path import tidying

BACKLOG = 1024
HEAD_BYTES = 32 * 1024  # of the request line, and of all headers: cookies of a whole host may come along
MAX_HEADERS = 256
SEND_BUFFER_BYTES = 128 * 1024  # small, so that a client that stops reading is noticed early
CANCEL_SECONDS = 0.5  # for handlers that are cut off at the end


class Listener:
    """Serves an application at :attr:`address`, once it is started."""

    def __init__(self, app: web.Application, bounds: Bounds, probe: Probe, keepalive_timeout: float) -> None:
        """``probe`` answers health checks on connections beyond the bounds."""
        self.address = ""
        self._bounds, self._probe, self._keepalive = bounds, probe, keepalive_timeout
        self._listening: asyncio.Server | None = None
        self._connections: Connections | None = None
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=CANCEL_SECONDS)

    @property
    def connections(self) -> int:
        """Open connections."""
        return 0 if self._connections is None else len(self._connections)

    async def start(self, host: str, port: int) -> None:
        """Bind and serve; "::" stands for all addresses of both families.

        Raises:
            OSError: the address can't be bound.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::")
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # accepted sockets inherit it
        listener.setblocking(False)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None, "it is set up"
        server.request_factory = tidying(server.request_factory)
        self._connections = Connections(
            server,
            self._bounds,
            self._probe,
            access_log=None,
            keepalive_timeout=self._keepalive,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
            max_headers=MAX_HEADERS,
        )
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self._connections, sock=listener, backlog=BACKLOG)
        name = f"[{host}]" if family == socket.AF_INET6 else host
        self.address = f"{name}:{listener.getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening and break off what still runs."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()
