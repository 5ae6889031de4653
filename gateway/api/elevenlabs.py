"""ElevenLabs' speech API: text to sound in one piece or streamed, and the voices."""

from __future__ import annotations

import asyncio

from aiohttp import web
from msgspec import structs

from gateway.access.auth import CLIENT
from gateway.api.openai import named_voice
from gateway.errors import RequestError
from gateway.http.body import read_fields
from gateway.http.replies import json_reply
from gateway.schema import replies
from gateway.schema.elevenlabs_fields import DEFAULT_OUTPUT, NAMES, translate
from gateway.schema.fields import FISH
from gateway.services import GATEWAY
from gateway.speech import encoded_stream, http_reply

routes = web.RouteTableDef()


@routes.post("/v1/text-to-speech/{voice_id}")
async def convert(request: web.Request) -> web.StreamResponse:
    return await _speak(request, streaming=False)


@routes.post("/v1/text-to-speech/{voice_id}/stream")
async def stream(request: web.Request) -> web.StreamResponse:
    return await _speak(request, streaming=True)


@routes.get("/v1/voices")
async def voices(request: web.Request) -> web.Response:
    library = request.app[GATEWAY].voices.library
    known = await asyncio.to_thread(library.voices, request[CLIENT].viewer)
    return json_reply(replies.ElevenLabsVoices([replies.ElevenLabsVoice(voice.id, voice.title) for voice in known]))


async def _speak(request: web.Request, streaming: bool) -> web.StreamResponse:
    formats = request.query.getall("output_format", [DEFAULT_OUTPUT])  # several are none that is known
    values, output = translate(await read_fields(request), ",".join(formats), streaming)
    voice = await named_voice(request.app[GATEWAY], request.match_info["voice_id"], request[CLIENT].viewer)
    if voice is not None:
        values["reference_id"] = voice
    try:
        wanted = await encoded_stream.accept(request, values, FISH)
        if output.format == "mp3":  # with more bit rates than Fish's API has
            wanted = structs.replace(wanted, delivery=structs.replace(wanted.delivery, mp3_bitrate=output.kilobits))
        return await http_reply.answer(request, "elevenlabs", wanted, http_reply.Unframed())
    except RequestError as error:
        error.rename(NAMES)
        raise
