"""Forms: multipart bodies with files, and URL-encoded ones."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from aiohttp import BodyPartReader, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.http import buffers
from gateway.http.body import in_time
from gateway.http.buffers import BODY
from gateway.http.errors import ApiError, invalid

MULTIPART, URL_ENCODED = "multipart/form-data", "application/x-www-form-urlencoded"

MOST_PARTS = 1000
CHUNK_BYTES = 64 * 1024
RECORDINGS = frozenset({"audio", "audio_sample", "voices", "reference_audio"})
"""Parts that hold recordings."""

_STRINGS = frozenset({"text", "format", "latency", "use_memory_cache", "reference_id"})
_AUDIO, _TEXT = "reference_audio", "reference_text"


class Form(NamedTuple):
    """The parts of a form by name; a name may occur several times."""

    texts: dict[str, list[str]]
    files: dict[str, list[bytes]]

    def text(self, name: str) -> str:
        """Return the first text part of this name.

        Raises:
            ApiError: 400: there is none.
        """
        if name not in self.texts:
            raise ApiError(400, "missing_field", f"{name}: required", name)
        return self.texts[name][0]

    def file(self, name: str) -> bytes:
        """Return the first file of this name.

        Raises:
            ApiError: 400: there is none.
        """
        if name not in self.files:
            raise ApiError(400, "missing_field", f"{name}: a file is required", name)
        return self.files[name][0]


async def read(request: web.Request, *kinds: str) -> Form:
    """Read a form whose content type is one of ``kinds``.

    Raises:
        ApiError: 415 for another content type, 400 for a body that is no such form, 408 for one that comes too slowly.
    """
    if request.content_type not in kinds:
        accept = ", ".join(kinds)
        raise ApiError(415, "unsupported_media_type", f"send {accept}", headers={"Accept": accept})
    try:
        reading = _multipart(request) if request.content_type == MULTIPART else _url_encoded(request)
        return await in_time(request, reading)
    except (ValueError, LookupError, RuntimeError, HttpProcessingError) as error:
        code = "invalid_multipart" if request.content_type == MULTIPART else "invalid_form"
        raise ApiError(400, code, f"the body is not {request.content_type}: {error}") from None


async def _url_encoded(request: web.Request) -> Form:
    form = Form({}, {})
    charset = request.charset or "utf-8"
    body = (await buffers.read(request)).decode(charset).rstrip()
    for name, text in parse_qsl(body, keep_blank_values=True, encoding=charset):
        form.texts.setdefault(name, []).append(text)
    return form


async def _multipart(request: web.Request) -> Form:
    """Read the parts of a form. A recording is a file even if its part has no file name, as many libraries send it."""
    form, size = Form({}, {}), 0
    reader = await request.multipart()
    for _ in range(MOST_PARTS):
        part = await reader.next()
        if part is None:
            return form
        if not isinstance(part, BodyPartReader) or not part.name:
            raise ValueError("a part without a name")
        part.name.encode()  # a ValueError unless it came as UTF-8
        data = bytearray()
        while chunk := await part.read_chunk(CHUNK_BYTES):
            request[BODY].grow(len(chunk))
            data += chunk
            size += len(chunk)
            if size > request.client_max_size:
                raise web.HTTPRequestEntityTooLarge(request.client_max_size, size)
        content = bytes(part.decode(data))
        if part.filename or (part.name in RECORDINGS and _is_binary(part, content)):
            form.files.setdefault(part.name, []).append(content)
        else:
            form.texts.setdefault(part.name, []).append(_decoded(content, part.name))
    raise ValueError(f"more than {MOST_PARTS} parts")


def _is_binary(part: BodyPartReader, content: bytes) -> bool:
    if part.headers.get(hdrs.CONTENT_TYPE, "").startswith("audio/"):
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return False


def speech_fields(form: Form) -> dict[str, Any]:
    """Convert a form to fields of a speech request: strings unchanged, everything else parsed as JSON.

    Recordings are the files ``reference_audio``, each with its text in ``reference_text``, in the same order.

    Raises:
        ApiError: 400: recordings and texts that don't belong together.
    """
    values: dict[str, Any] = {name: _value(name, texts) for name, texts in form.texts.items() if name != _TEXT}
    audio, texts = form.files.get(_AUDIO, []), form.texts.get(_TEXT, [])
    if len(audio) != len(texts):
        raise invalid(_TEXT, f"{len(texts)} texts for {len(audio)} files {_AUDIO}")
    if audio:
        values["references"] = [{"audio": data, "text": text} for data, text in zip(audio, texts, strict=True)]
    return {name: value for name, value in values.items() if value is not None}


def _value(name: str, texts: list[str]) -> Any:
    if name == "reference_id" and len(texts) > 1:
        return texts
    if name in _STRINGS:
        return texts[0]
    try:
        return msgspec.json.decode(texts[0])
    except (msgspec.DecodeError, RecursionError):
        return texts[0]


def _decoded(part: bytes | bytearray, name: str) -> str:
    try:
        return part.decode()
    except UnicodeDecodeError:
        raise invalid(name, "is not UTF-8") from None
