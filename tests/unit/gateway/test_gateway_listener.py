"""Which addresses a listener serves."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from gateway.http.connections import Bounds
from gateway.http.listener import Listener


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("127.0.0.1", {"127.0.0.1": True, "::1": False}),
        ("::1", {"127.0.0.1": False, "::1": True}),
        ("0.0.0.0", {"127.0.0.1": True, "::1": False}),
        ("::", {"127.0.0.1": True, "::1": True}),
    ],
)
def test_a_host_is_served_at_its_addresses(host: str, reached: dict[str, bool]) -> None:
    async def run() -> None:
        listener = Listener(web.Application(), Bounds(8, 8, 5.0), probe=lambda head: None, keepalive_timeout=5.0)
        await listener.start(host, 0)
        try:
            port = int(listener.address.rpartition(":")[2])
            for address, expected in reached.items():
                assert await answers(address, port) is expected, address
        finally:
            await listener.close()

    asyncio.run(run())


async def answers(address: str, port: int) -> bool:
    """Whether somebody accepts a connection and answers a request."""
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 404")
