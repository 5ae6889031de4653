"""``/v1/vqgan/*`` and ``/v1/asr``: fish-speech's codec endpoints, and its transcription endpoint (not implemented)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from common.messages import Array
from gateway.engine.streams import Chunk
from gateway.http.body import read_fields
from gateway.http.errors import ApiError, invalid
from gateway.services import GATEWAY, Gateway
from gateway.speech import encoded_stream
from gateway.speech.session import Session

MAX_FRAMES = 4096  # of all codes of a request: its sound is held in memory

routes = web.RouteTableDef()


@routes.post("/v1/vqgan/encode")
async def encode(request: web.Request) -> web.Response:
    """Encode recordings: ``{audios: [file, ...]}`` to ``{tokens: [[10 rows of codes], ...]}``."""
    gateway = request.app[GATEWAY]
    audios = _list(await read_fields(request), "audios", gateway.settings.max_references)
    for index, audio in enumerate(audios):
        if not isinstance(audio, bytes):
            raise invalid(f"audios[{index}]", "is not binary")
    tokens = [await gateway.voices.clip(audio, f"audios[{index}]") for index, audio in enumerate(audios)]
    return await _reply({"tokens": [codes.tolist() for codes in tokens]})


@routes.post("/v1/vqgan/decode")
async def decode(request: web.Request) -> web.Response:
    """Decode codes: ``{tokens: [[10 rows of codes], ...]}`` to ``{audios: [float16 samples, ...]}``."""
    gateway = request.app[GATEWAY]
    tokens = _list(await read_fields(request), "tokens", gateway.settings.max_references)
    if sum(_frames(gateway, rows, f"tokens[{index}]") for index, rows in enumerate(tokens)) > MAX_FRAMES:
        raise invalid("tokens", f"has more than {MAX_FRAMES} frames in all")
    codes = [_codes(gateway, rows, f"tokens[{index}]") for index, rows in enumerate(tokens)]
    return await _reply({"audios": [await _sound(request, array) for array in codes]})


@routes.post("/v1/asr")
async def transcribe(request: web.Request) -> web.Response:
    raise ApiError(501, "not_implemented", "this server does not transcribe")


async def _sound(request: web.Request, codes: Array) -> bytes:
    """Decode codes to samples, float16 [frames * hop], little-endian."""
    gateway = request.app[GATEWAY]
    with Session(gateway, request, "vqgan", "pcm") as session:
        stream = session.stream = gateway.engine.submit_codes(session.request, session.client.name, codes)
        pieces = []
        while isinstance(item := await stream.next(), Chunk):
            pieces.append(item.data.astype("<f2").tobytes())
            session.timeline.chunk(item.frames, len(pieces[-1]), item.frames / gateway.model.frame_rate)
            stream.read_up_to(item.first + item.frames)
        encoded_stream.check_end(item)
        session.reason = item.reason
        return b"".join(pieces)


def _frames(gateway: Gateway, rows: Any, param: str) -> int:
    """Return the number of frames in nested lists, without checking their elements.

    Raises:
        ApiError: 400: another shape.
    """
    books = len(gateway.model.codebook_sizes)
    if isinstance(rows, list) and len(rows) == books and all(isinstance(row, list) for row in rows):
        lengths = set(map(len, rows))
        if len(lengths) == 1 and lengths != {0}:
            return lengths.pop()
    raise invalid(param, f"is not {books} rows of as many codes each")


def _codes(gateway: Gateway, rows: list[list[Any]], param: str) -> Array:
    """Convert nested lists to codes, int16 [10, frames].

    Raises:
        ApiError: 400: what is no code, or codes beyond their codebooks.
    """
    for row, size in zip(rows, gateway.model.codebook_sizes, strict=True):
        if not all(type(code) is int and 0 <= code < size for code in row):
            raise invalid(param, "holds codes beyond their codebooks")
    return np.array(rows, np.int16)


def _list(values: dict[str, Any], name: str, most: int) -> list[Any]:
    if name not in values:
        raise ApiError(400, "missing_field", f"{name}: required", name)
    found = values[name]
    if not isinstance(found, list):
        raise invalid(name, "is not a list")
    if len(found) > most:
        raise invalid(name, f"has {len(found)} entries, more than {most}")
    return found


async def _reply(values: dict[str, Any]) -> web.Response:
    body = await asyncio.to_thread(msgspec.msgpack.encode, values)
    return web.Response(body=body, content_type="application/msgpack")
