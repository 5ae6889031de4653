"""A response stream: bytes count as sent once the socket has taken them, and an end is either clean or visible."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from common.messages import FinishReason
from gateway.errors import SlowClientError
from gateway.http import trailers

SLICE_BYTES = 64 * 1024  # the client's progress is checked after so many
TRAILER = "X-Finish-Reason"

STARTED: web.RequestKey[web.StreamResponse] = web.RequestKey("started", web.StreamResponse)
"""The response of a request, once its head has been sent."""


class ResponseStream:
    """Sends one response, piece by piece. Without a length it is chunked and ends with a trailer (HTTP/1.1)."""

    def __init__(self, response: web.StreamResponse, writer: AbstractStreamWriter, patience: float) -> None:
        self._response = response
        self._writer: Any = writer  # the abstract class lacks ``write(drain=...)``
        self._patience = patience

    @classmethod
    async def open(cls, request: web.Request, response: web.StreamResponse, patience: float) -> ResponseStream:
        """Send the head. ``patience``: seconds without any progress after which the client counts as too slow."""
        if response.content_length is None and request.version >= (1, 1):
            response.headers["Trailer"] = TRAILER
        if request.transport is not None:
            # Not buffered here: then a client that does not read is seen as soon as the kernel's buffer is full.
            request.transport.set_write_buffer_limits(high=0)
        writer = await response.prepare(request)
        assert writer is not None
        return cls(response, writer, patience)

    async def send(self, data: bytes) -> None:
        """Return when the socket has taken all of it.

        Raises:
            SlowClientError: no progress for too long.
            ConnectionError: the client has gone.
        """
        for begin in range(0, len(data), SLICE_BYTES):
            await self._writer.write(data[begin : begin + SLICE_BYTES], drain=False)
            if self._writer.transport.get_write_buffer_size():
                await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._writer.drain()
        except TimeoutError:
            raise SlowClientError from None

    async def finish(self, reason: FinishReason) -> None:
        """End a complete response."""
        if trailers.is_chunked(self._writer):
            await trailers.finish(self._response, self._writer, {TRAILER: reason})
        else:
            await self._response.write_eof()


def break_off(request: web.Request, response: web.StreamResponse) -> None:
    """Cut the connection, so that the client can't take a part for the whole."""
    transport = request.transport
    if transport is None:
        return
    if not response.chunked and response.content_length is None:
        # Only the end of the connection ends such a body: reset it.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
