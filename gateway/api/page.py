"""``GET /``: the web page; ``GET /status``: the server's state for it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from gateway.http.replies import json_reply
from gateway.schema import replies
from gateway.services import GATEWAY

INDEX = "index.html"
DIRECTORY = Path(__file__).resolve().parent.parent / "web"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Cache-Control": "no-cache",  # kept by the browser, and asked for each time: the tag says whether it still holds
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "media-src 'self' blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class File(NamedTuple):
    """A file of the page. ``tag``: strong entity tag, a hash of the content."""

    content: bytes
    media_type: str
    tag: str


def _read(path: Path) -> File:
    content = path.read_bytes()
    return File(content, MEDIA_TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:32])


FILES = {path.name: _read(path) for path in sorted(DIRECTORY.iterdir()) if path.suffix in MEDIA_TYPES}

routes = web.RouteTableDef()


@routes.get("/")
async def page(request: web.Request) -> web.Response:
    return _file(request, FILES[INDEX])


@routes.get("/web/{name}")
async def part(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in FILES:
        raise web.HTTPNotFound
    return _file(request, FILES[name])


@routes.get("/status")
async def status(request: web.Request) -> web.Response:
    """State of the server, polled by the page each second and answered from the gateway's own knowledge."""
    gateway = request.app[GATEWAY]
    waiting = gateway.engine.waiting
    return json_reply(
        replies.PageStatus(
            ready=not gateway.draining and not gateway.engine.unready(),
            model=gateway.model.name,
            sample_rate=gateway.model.sample_rate,
            running=gateway.engine.in_flight - waiting,
            waiting=waiting,
        )
    )


def _file(request: web.Request, file: File) -> web.Response:
    """Reply with the file, or 304 if the browser has it."""
    held = request.if_none_match or ()
    if any(tag.value in (file.tag, "*") for tag in held):
        response = web.Response(status=304, headers=HEADERS)
    else:
        response = web.Response(body=file.content, headers=HEADERS | {"Content-Type": file.media_type})
    response.etag = file.tag
    return response
