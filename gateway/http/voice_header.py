"""``X-Voice-Id``: by it, whoever stands before several groups sends the requests of a voice to the same one."""

from __future__ import annotations

import re

from aiohttp import web

HEADER = "X-Voice-Id"
MAX_LENGTH = 256

_SANE = re.compile(rf"^[!-~]([ -~]{{0,{MAX_LENGTH - 2}}}[!-~])?$")


def sent(request: web.Request) -> dict[str, str]:
    """The header as the client sent it, for the reply; empty if it sent none, or one that makes no sense."""
    return _header(request.headers.get(HEADER, ""))


def of(voices: list[str]) -> dict[str, str]:
    """The header of a reply in these voices, one per speaker; empty if there are none, or too many for a header."""
    return _header(",".join(voices))


def _header(value: str) -> dict[str, str]:
    return {HEADER: value} if _SANE.fullmatch(value) else {}
