"""``POST /v1/tts``: text in, sound out, streamed or in one piece."""

from __future__ import annotations

from aiohttp import web

from gateway import replies, speech

routes = web.RouteTableDef()


@routes.post("/v1/tts")
async def tts(request: web.Request) -> web.StreamResponse:
    return await replies.answer(request, "tts", await speech.read_request(request), replies.Bare())
