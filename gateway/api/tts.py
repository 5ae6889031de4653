"""``POST /v1/tts``: text to sound, streamed or in one piece."""

from __future__ import annotations

from aiohttp import web

from gateway.speech import encoded_stream, http_reply

routes = web.RouteTableDef()


@routes.post("/v1/tts")
async def tts(request: web.Request) -> web.StreamResponse:
    return await http_reply.answer(request, "tts", await encoded_stream.read_request(request), http_reply.Unframed())
