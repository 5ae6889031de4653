"""Paths of requests as mistyped base addresses produce them: ``//v1/tts``, ``/v1/v1/models``, ``/audio/speech/``."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp.http import RawRequestMessage
from yarl import URL

_SLASHES = re.compile("/{2,}")
_REPEATED_VERSION = re.compile(r"^(/compat)?(/v1){2,}(?=/)")
_ENDPOINT_AS_BASE = re.compile(
    r"^/v1/(?:audio/speech|tts)(?:/v1)?(/audio/.+|/models(?:/.+)?|/tts(?:/.+)?|/references/.+)$"
)
_WITHOUT_VERSION = re.compile(r"^/(?:audio/|models(?:/|$)|tts(?:/|$))")


def tidied(path: str) -> str:
    """The path that a client meant, query included; a path without a known mistake stays unchanged.

    Repeated slashes and a slash at the end go, ``/v1`` counts once and is added where OpenAI's or Fish's routes lack
    it, and an endpoint that was given as the base address is dropped.
    """
    route, mark, query = path.partition("?")
    route = _SLASHES.sub("/", route)
    if len(route) > 1:
        route = route.removesuffix("/")
    route = _REPEATED_VERSION.sub(lambda found: f"{found[1] or ''}/v1", route)
    route = _ENDPOINT_AS_BASE.sub(r"/v1\1", route)
    if _WITHOUT_VERSION.match(route):
        route = f"/v1{route}"
    return route + mark + query


def tidying(make: Callable[..., Any]) -> Callable[..., Any]:
    """A request factory that tidies the path before ``make`` builds the request."""

    def make_tidied(message: RawRequestMessage, *rest: Any) -> Awaitable[Any] | Any:
        path = tidied(message.path)
        if path != message.path:
            message = message._replace(path=path, url=URL(path, encoded=True))
        return make(message, *rest)

    return make_tidied
