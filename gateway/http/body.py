"""Request bodies: JSON or msgpack to a map of fields."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from gateway.http import buffers
from gateway.http.errors import ApiError
from gateway.http.offload import LONG_TO_DECODE, offload
from gateway.http.settings import SETTINGS

T = TypeVar("T")

ACCEPTED: dict[str, Callable[[bytes], Any]] = {
    "application/json": msgspec.json.decode,
    "application/msgpack": msgspec.msgpack.decode,
}
MAX_DEPTH = 16  # of maps in one another; no field needs more than two


async def read_fields(request: web.Request) -> dict[str, Any]:
    """Read the fields of the body, without nulls.

    Raises:
        ApiError: 415 for another content type, 400 for what can't be decoded or is no map, 408 for what comes too
            slowly.
    """
    decode = ACCEPTED.get(request.content_type)
    if decode is None:
        accept = ", ".join(ACCEPTED)
        message = f"content type {request.content_type} is not supported; send {accept}"
        raise ApiError(415, "unsupported_media_type", message, headers={"Accept": accept})
    raw = await in_time(request, buffers.read(request))
    kind = request.content_type.removeprefix("application/")
    return await offload(len(raw) > LONG_TO_DECODE, _fields, decode, raw, kind)


async def in_time(request: web.Request, reading: Awaitable[T]) -> T:
    """Await ``reading`` of the body within the body timeout.

    Raises:
        ApiError: 408.
    """
    seconds = request.app[SETTINGS].body_timeout
    try:
        async with asyncio.timeout(seconds):
            return await reading
    except TimeoutError:
        message = f"the body did not come within {seconds:g} s"
        raise ApiError(408, "body_timeout", message, headers={"Connection": "close"}) from None


def _fields(decode: Callable[[bytes], Any], raw: bytes, kind: str) -> dict[str, Any]:
    try:
        values = decode(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"invalid_{kind}", f"the body is not {kind}: {error}") from None
    if not isinstance(values, dict):
        raise ApiError(400, f"invalid_{kind}", "the body is not a map of fields")
    return without_nulls(values)


def without_nulls(values: dict[Any, Any], depth: int = MAX_DEPTH) -> dict[Any, Any]:
    """Remove null fields, also in nested maps: null counts as absent.

    Raises:
        ApiError: 400: maps in one another, more than ``depth`` of them.
    """
    if not depth:
        raise ApiError(400, "invalid_value", f"more than {MAX_DEPTH} maps lie in one another")
    return {
        name: without_nulls(value, depth - 1) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }
