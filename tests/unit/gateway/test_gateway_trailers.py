"""Trailers: written past the HTTP library, so a change of its private state must show here."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.http import trailers

HEAD = b"GET / HTTP/1.%d\r\nHost: x\r\nConnection: close\r\n\r\n"


async def answer(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Trailer": "X-End"})
    writer = await response.prepare(request)
    assert writer is not None
    await response.write(b"some sound")
    if trailers.is_chunked(writer):
        await trailers.finish(response, writer, {"X-End": "stop", "X-More": "1"})
    return response


async def fetched(minor: int) -> bytes:
    app = web.Application()
    app.router.add_get("/", answer)
    async with TestServer(app) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(HEAD % minor)
        body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")[2]
        writer.close()
        return body


def test_trailers_follow_the_last_chunk() -> None:
    assert asyncio.run(fetched(1)) == b"a\r\nsome sound\r\n0\r\nX-End: stop\r\nX-More: 1\r\n\r\n"


def test_a_body_that_is_not_chunked_has_none() -> None:
    assert asyncio.run(fetched(0)) == b"some sound"
