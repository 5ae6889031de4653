"""``/model``: the voice library for Fish's SDKs, whose word for a voice is model."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from aiohttp import web

from gateway.access.auth import CLIENT
from gateway.http import forms
from gateway.http.errors import ApiError, invalid
from gateway.http.forms import Form
from gateway.http.replies import json_reply
from gateway.schema import replies
from gateway.schema.fields import check_text, convert
from gateway.schema.voice_fields import MAX_TAG, MAX_TAGS, Listing, Naming
from gateway.services import GATEWAY, Gateway
from gateway.voices.catalogue import Voice
from gateway.voices.library import Details

routes = web.RouteTableDef()


@routes.get("/model")
async def list_all(request: web.Request) -> web.Response:
    query = convert({name: value for name, value in request.query.items() if value}, Listing, strict=False)
    voices = await asyncio.to_thread(request.app[GATEWAY].voices.library.voices, request[CLIENT].viewer)
    own = request[CLIENT].owner if request.query.get("self", "").lower() == "true" else ""
    found = list(_matching(voices, query, own, set(request.query.getall("tag", []))))
    if query.sort_by == "created_at":
        found.sort(key=lambda voice: -voice.created)
    begin = (query.page_number - 1) * query.page_size
    items = [_fish_voice(voice) for voice in found[begin : begin + query.page_size]]
    return json_reply(replies.FishVoices(len(found), items))


@routes.get("/model/{id}")
async def show(request: web.Request) -> web.Response:
    library = request.app[GATEWAY].voices.library
    viewer = request[CLIENT].viewer
    return json_reply(_fish_voice(await asyncio.to_thread(library.find, request.match_info["id"], "id", viewer)))


@routes.post("/model")
async def create(request: web.Request) -> web.Response:
    gateway = request.app[GATEWAY]
    form = await forms.read(request, forms.MULTIPART)
    naming = _naming(form)
    if naming.title is None:
        raise ApiError(400, "missing_field", "title: required", "title")
    details = Details(
        title=naming.title,
        description=naming.description or "",
        visibility=naming.visibility or "private",
        tags=_tags(form) or (),
        owner=request[CLIENT].owner,
    )
    voice = await gateway.voices.add(uuid.uuid4().hex, details, _recordings(gateway, form), "voices")
    return json_reply(_fish_voice(voice), status=201)


@routes.patch("/model/{id}")
async def change(request: web.Request) -> web.Response:
    library, viewer = request.app[GATEWAY].voices.library, request[CLIENT].viewer
    form = await forms.read(request, forms.URL_ENCODED, forms.MULTIPART)
    naming, tags = _naming(form), _tags(form)
    voice = await asyncio.to_thread(library.find, request.match_info["id"], "id", viewer)
    details = Details(
        title=voice.title if naming.title is None else naming.title,
        description=voice.description if naming.description is None else naming.description,
        visibility=naming.visibility or voice.visibility,
        tags=tuple(voice.tags) if tags is None else tags,
    )
    return json_reply(_fish_voice(await asyncio.to_thread(library.edit, voice.id, details, viewer)))


@routes.delete("/model/{id}")
async def delete(request: web.Request) -> web.Response:
    voice = request.match_info["id"]
    await request.app[GATEWAY].voices.delete(voice, request[CLIENT].viewer, "id")
    return json_reply(replies.Deleted(200, f"voice {voice!r} deleted"))


def _matching(voices: list[Voice], query: Listing, owner: str, tags: set[str]) -> Iterator[Voice]:
    title = query.title.casefold()
    for voice in voices:
        by_owner = (not owner or voice.owner == owner) and query.author_id in ("", voice.owner)
        if by_owner and title in voice.title.casefold() and tags <= set(voice.tags):
            yield voice


def _recordings(gateway: Gateway, form: Form) -> list[tuple[bytes, str]]:
    audio, texts = form.files.get("voices", []), form.texts.get("texts", [])
    if not audio:
        raise ApiError(400, "missing_field", "voices: at least one file is required", "voices")
    if not texts:
        message = "texts: required, what is said in each recording; this server does not transcribe"
        raise ApiError(400, "missing_field", message, "texts")
    if len(texts) != len(audio):
        raise invalid("texts", f"{len(texts)} texts for {len(audio)} recordings")
    if len(audio) > gateway.settings.max_references:
        raise invalid("voices", f"has {len(audio)} files, more than {gateway.settings.max_references}")
    for number, text in enumerate(texts):
        check_text(text, f"texts[{number}]", gateway.model, gateway.settings)
    return list(zip(audio, texts, strict=True))


def _naming(form: Form) -> Naming:
    return convert({name: texts[0] for name, texts in form.texts.items()}, Naming, strict=False)


def _tags(form: Form) -> tuple[str, ...] | None:
    tags = form.texts.get("tags")
    if tags is None:
        return None
    if len(tags) > MAX_TAGS or any(len(tag) > MAX_TAG for tag in tags):
        raise invalid("tags", f"are more than {MAX_TAGS}, or longer than {MAX_TAG} characters")
    return tuple(filter(None, tags))


def _fish_voice(voice: Voice) -> replies.FishVoice:
    return replies.FishVoice(
        id=voice.id,
        title=voice.title,
        description=voice.description,
        tags=voice.tags,
        created_at=_iso(voice.created),
        updated_at=_iso(voice.updated),
        visibility=voice.visibility,
        author=replies.Author(voice.owner, voice.owner),
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
