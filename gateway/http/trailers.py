"""Trailers of chunked responses, which the HTTP library does not write.

This is the only place that touches its private state: the ``chunked`` flag of the writer behind a response.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter


def is_chunked(writer: AbstractStreamWriter) -> bool:
    """Return whether a response is sent in chunks, so that it can have trailers."""
    state: Any = writer
    return bool(state.chunked)


async def finish(response: web.StreamResponse, writer: AbstractStreamWriter, trailers: dict[str, str]) -> None:
    """Write the last chunk with ``trailers`` and end a chunked response."""
    state: Any = writer
    state.chunked = False  # the last chunk is written here, as it stands on the wire
    lines = "".join(f"{name}: {value}\r\n" for name, value in trailers.items())
    await response.write_eof(f"0\r\n{lines}\r\n".encode())
