"""``/v1/references/*``: the library of voices, as Fish's server words it. Replies: msgpack, or JSON on request."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec
from aiohttp import web

from gateway import reference_audio, speech
from gateway.body import read_fields
from gateway.errors import ApiError, invalid
from gateway.fields import check_text
from gateway.services import GATEWAY, Gateway

routes = web.RouteTableDef()


@routes.post("/v1/references/add")
async def add(request: web.Request) -> web.Response:
    gateway = request.app[GATEWAY]
    voice, text, audio = await _read_upload(request)
    await asyncio.to_thread(gateway.voices.check_new, voice)
    check_text(text, "text", gateway.model, gateway.settings)
    codes = await _codes(gateway, audio)
    await asyncio.to_thread(gateway.voices.add, voice, text, codes, audio)
    return _reply(request, message=f"voice {voice!r} added", reference_id=voice)


@routes.get("/v1/references/list")
async def list_all(request: web.Request) -> web.Response:
    voices = await asyncio.to_thread(request.app[GATEWAY].voices.ids)
    return _reply(request, reference_ids=voices, message=f"{len(voices)} voices")


@routes.delete("/v1/references/delete")
async def delete(request: web.Request) -> web.Response:
    voice = _text_field(await read_fields(request), "reference_id")
    await asyncio.to_thread(request.app[GATEWAY].voices.delete, voice)
    return _reply(request, message=f"voice {voice!r} deleted", reference_id=voice)


@routes.post("/v1/references/update")
async def rename(request: web.Request) -> web.Response:
    values = await read_fields(request)
    old, new = _text_field(values, "old_reference_id"), _text_field(values, "new_reference_id")
    await asyncio.to_thread(request.app[GATEWAY].voices.rename, old, new)
    return _reply(request, message=f"voice {old!r} is now {new!r}", old_reference_id=old, new_reference_id=new)


async def _read_upload(request: web.Request) -> tuple[str, str, bytes]:
    """Id, text and audio file of a multipart body."""
    if request.content_type != "multipart/form-data":
        message = "send multipart/form-data with the parts id, text and audio"
        raise ApiError(415, "unsupported_media_type", message, headers={"Accept": "multipart/form-data"})
    try:
        form: dict[str, Any] = dict(await request.post())
    except ValueError as error:
        raise ApiError(400, "invalid_multipart", f"the body is not multipart/form-data: {error}") from None
    audio = form.get("audio")
    if not isinstance(audio, web.FileField):
        raise ApiError(400, "missing_field", "audio: a file is required", "audio")
    return _text_field(form, "id"), _text_field(form, "text"), await asyncio.to_thread(audio.file.read)


def _text_field(values: dict[str, Any], name: str) -> str:
    if name not in values:
        raise ApiError(400, "missing_field", f"{name}: required", name)
    value = values[name]
    if not isinstance(value, str):
        raise invalid(name, "is not a string")
    return value


async def _codes(gateway: Gateway, audio: bytes) -> Any:
    rate, seconds = gateway.model.sample_rate, gateway.settings.reference_seconds
    samples = await asyncio.to_thread(reference_audio.decode, audio, rate, seconds, "audio")
    return await speech.encode(gateway, uuid.uuid4().hex, samples)


def _reply(request: web.Request, **values: Any) -> web.Response:
    accept = request.headers.get("Accept", "")
    wanted = request.query.get("format", "")
    json = wanted in ("json", "application/json") or (
        "application/json" in accept and "application/msgpack" not in accept
    )
    encode = msgspec.json.encode if json else msgspec.msgpack.encode
    kind = "application/json" if json else "application/msgpack"
    return web.Response(body=encode({"success": True} | values), content_type=kind)
