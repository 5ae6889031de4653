"""OpenAI's speech API: ``POST /v1/audio/speech`` and the listings that its clients use."""

from __future__ import annotations

import asyncio
import base64
import time
from fnmatch import fnmatchcase
from typing import Any

from aiohttp import web

from gateway.access.auth import CLIENT
from gateway.errors import RequestError
from gateway.http import forms
from gateway.http.body import read_fields
from gateway.http.errors import ApiError
from gateway.http.replies import event, json_reply
from gateway.schema import replies
from gateway.schema.fields import OPENAI, check_text
from gateway.schema.openai_fields import OpenAIFields, translate
from gateway.services import GATEWAY, Gateway
from gateway.speech import encoded_stream, http_reply
from gateway.speech.http_reply import Framing, Unframed
from gateway.voices.catalogue import Voice
from gateway.voices.library import Details
from gateway.voices.viewer import Viewer

DEFAULT_VOICE = "default"
# Clients know these without asking, some know no others. Each speaks with the default voice, unless the configuration
# names one for it, or a voice has its name.
STANDARD_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
)

routes = web.RouteTableDef()

_STARTED = int(time.time())


@routes.post("/v1/audio/speech")
async def say(request: web.Request) -> web.StreamResponse:
    gateway, body = request.app[GATEWAY], translate(await read_fields(request))
    voice = await _voice(gateway, body, request[CLIENT].viewer)
    values = body.values if voice is None else body.values | {"reference_id": voice}
    framing: Framing = Events() if body.events else Unframed()
    try:
        wanted = await encoded_stream.accept(request, values, OPENAI)
        return await http_reply.answer(request, "openai", wanted, framing)
    except RequestError as error:
        error.rename(body.names)
        raise


class Events:
    """Framing as server-sent events: one with base64 per piece of sound, and one for the end."""

    def media_type(self, sound: str) -> str:
        return "text/event-stream"

    def piece(self, data: bytes) -> bytes:
        return event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})

    def end(self, prompt_tokens: int, frames: int) -> bytes:
        usage = {"input_tokens": prompt_tokens, "output_tokens": frames, "total_tokens": prompt_tokens + frames}
        return event({"type": "speech.audio.done", "usage": usage})


@routes.get("/v1/models")
async def models(request: web.Request) -> web.Response:
    return json_reply(replies.Models("list", [replies.Model(**_model(request.app[GATEWAY].model.name))]))


@routes.get("/v1/models/{id}")
async def model(request: web.Request) -> web.Response:
    gateway, name = request.app[GATEWAY], request.match_info["id"]
    if not _is_ours(gateway, name):
        raise _no_model(gateway, name)
    titles = [replies.VoiceTitle(voice.name) for voice in await _voices(gateway, request[CLIENT].viewer)]
    rate = gateway.model.sample_rate
    return json_reply(replies.ModelFacts(**_model(name), task="text-to-speech", sample_rate=rate, voices=titles))


@routes.get("/v1/audio/models")
async def speech_models(request: web.Request) -> web.Response:
    return json_reply(replies.SpeechModels([replies.ModelId(request.app[GATEWAY].model.name)]))


@routes.get("/v1/audio/voices")
async def voices(request: web.Request) -> web.Response:
    return json_reply(replies.ListedVoices(await _voices(request.app[GATEWAY], request[CLIENT].viewer)))


@routes.post("/v1/audio/voices")
async def add_voice(request: web.Request) -> web.Response:
    """Add a voice from a recording. Unlike OpenAI's API, this one requires its transcript, ``ref_text``."""
    gateway, form = request.app[GATEWAY], await forms.read(request, forms.MULTIPART)
    name, audio = form.text("name"), form.file("audio_sample")
    if "ref_text" not in form.texts:
        message = "ref_text: required, what is said in the recording; this server does not transcribe"
        raise ApiError(400, "missing_field", message, "ref_text")
    text = form.text("ref_text")
    check_text(text, "ref_text", gateway.model, gateway.settings)
    details = Details(name, owner=request[CLIENT].owner)
    try:
        return json_reply(_created(await gateway.voices.add(name, details, [(audio, text)], "audio_sample")))
    except RequestError as error:
        error.rename({"id": "name"})
        raise


@routes.get("/v1/test")
async def test(request: web.Request) -> web.Response:
    """Probe of clients that support several servers: it tells them that voices can be listed."""
    return json_reply(replies.Status("ok"))


async def _voice(gateway: Gateway, body: OpenAIFields, viewer: Viewer) -> str | None:
    """Return the voice to speak with; None: the default one.

    Some clients send the voice as the model, and no voice.

    Raises:
        ApiError: 404: a model that is neither ours nor a voice.
    """
    by_model = "" if not body.model or (body.voice and _is_ours(gateway, body.model)) else body.model
    if by_model and await _exists(gateway, by_model, viewer):
        return await named_voice(gateway, body.voice or by_model, viewer)
    if body.model and not _is_ours(gateway, body.model):
        raise _no_model(gateway, body.model)
    return await named_voice(gateway, body.voice, viewer)


async def named_voice(gateway: Gateway, name: str, viewer: Viewer) -> str | None:
    """Return the voice that a client's name for it means; None: the default one."""
    alias = gateway.settings.openai_voices.get(name)
    if alias is not None:
        return alias or None
    has_default = not name or name == DEFAULT_VOICE or name in STANDARD_VOICES
    return None if has_default and not await _exists(gateway, name, viewer) else name


async def _exists(gateway: Gateway, voice: str, viewer: Viewer) -> bool:
    return await asyncio.to_thread(gateway.voices.library.exists, voice, viewer)


def _is_ours(gateway: Gateway, model: str) -> bool:
    patterns = gateway.settings.openai_models
    return model == gateway.model.name or any(fnmatchcase(model.lower(), pattern) for pattern in patterns)


def _no_model(gateway: Gateway, model: str) -> ApiError:
    message = f"model: {model!r} is no model for speech here; the one that is served is {gateway.model.name!r}"
    return ApiError(404, "model_not_found", message, "model")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _STARTED, "owned_by": "shoal"}


async def _voices(gateway: Gateway, viewer: Viewer) -> list[replies.ListedVoice]:
    """The default voice, the voices of the library, and the aliases of the configuration."""
    library = await asyncio.to_thread(gateway.voices.library.voices, viewer)
    names = {DEFAULT_VOICE: DEFAULT_VOICE} | {voice.id: voice.title for voice in library}
    names |= {alias: alias for alias in gateway.settings.openai_voices}
    return [replies.ListedVoice(name, title) for name, title in names.items()]


def _created(voice: Voice) -> replies.CreatedVoice:
    return replies.CreatedVoice(voice.id, "audio.voice", voice.title, int(voice.created), "audio_sample")
