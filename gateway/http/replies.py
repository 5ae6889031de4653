"""Replies: structures as JSON or msgpack, and server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

JSON, MSGPACK, EVENT_STREAM = "application/json", "application/msgpack", "text/event-stream"


def json_reply(body: Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A reply with ``body`` as JSON."""
    return web.Response(body=msgspec.json.encode(body), status=status, headers=headers, content_type=JSON)


def msgpack_reply(body: Struct) -> web.Response:
    """A reply with ``body`` as msgpack."""
    return web.Response(body=msgspec.msgpack.encode(body), content_type=MSGPACK)


def event(values: Mapping[str, Any]) -> bytes:
    """One server-sent event with ``values`` as JSON."""
    return b"data: " + msgspec.json.encode(values) + b"\n\n"
