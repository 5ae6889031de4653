"""``/v1/references/*``: the voice library of fish-speech's server. Replies: JSON, or msgpack on request."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from msgspec import Struct

from gateway.access.auth import CLIENT
from gateway.http import forms
from gateway.http.body import read_fields
from gateway.http.errors import ApiError, invalid
from gateway.http.replies import JSON, MSGPACK, json_reply, msgpack_reply
from gateway.schema import replies
from gateway.schema.fields import check_text
from gateway.services import GATEWAY
from gateway.voices.library import Details

routes = web.RouteTableDef()


@routes.post("/v1/references/add")
async def add(request: web.Request) -> web.Response:
    gateway = request.app[GATEWAY]
    form = await forms.read(request, forms.MULTIPART)
    voice, text, audio = form.text("id"), form.text("text"), form.file("audio")
    check_text(text, "text", gateway.model, gateway.settings)
    details = Details(voice, owner=request[CLIENT].owner)
    await gateway.voices.add(voice, details, [(audio, text)], "audio")
    return _reply(request, replies.ReferenceChanged(True, f"voice {voice!r} added", voice))


@routes.get("/v1/references/list")
async def list_all(request: web.Request) -> web.Response:
    voices = await asyncio.to_thread(request.app[GATEWAY].voices.library.ids, request[CLIENT].viewer)
    return _reply(request, replies.References(True, f"{len(voices)} voices", voices))


@routes.delete("/v1/references/delete")
async def delete(request: web.Request) -> web.Response:
    voice = _text_field(await _fields(request), "reference_id")
    await request.app[GATEWAY].voices.delete(voice, request[CLIENT].viewer)
    return _reply(request, replies.ReferenceChanged(True, f"voice {voice!r} deleted", voice))


@routes.post("/v1/references/update")
async def rename(request: web.Request) -> web.Response:
    values = await _fields(request)
    old, new = _text_field(values, "old_reference_id"), _text_field(values, "new_reference_id")
    await asyncio.to_thread(request.app[GATEWAY].voices.library.rename, old, new, request[CLIENT].viewer)
    return _reply(request, replies.ReferenceRenamed(True, f"voice {old!r} is now {new!r}", old, new))


async def _fields(request: web.Request) -> dict[str, Any]:
    if request.content_type == forms.MULTIPART:
        form = await forms.read(request, forms.MULTIPART)
        return {name: texts[0] for name, texts in form.texts.items()}
    return await read_fields(request)


def _text_field(values: dict[str, Any], name: str) -> str:
    if name not in values:
        raise ApiError(400, "missing_field", f"{name}: required", name)
    value = values[name]
    if not isinstance(value, str):
        raise invalid(name, "is not a string")
    return value


def _reply(request: web.Request, body: Struct) -> web.Response:
    """Encode ``body`` as msgpack if the query, ``Accept`` or the request's own body asks for it, else as JSON."""
    if wanted := request.query.get("format", ""):
        as_msgpack = wanted in ("msgpack", MSGPACK)
    else:
        accept = request.headers.get("Accept", "")
        as_msgpack = MSGPACK in accept or (request.content_type == MSGPACK and JSON not in accept)
    return msgpack_reply(body) if as_msgpack else json_reply(body)
