"""``X-Voice-Id``: lets a load balancer route the requests of a voice to the same group."""

from __future__ import annotations

import re

from aiohttp import web

HEADER = "X-Voice-Id"
MAX_LENGTH = 256

_SANE = re.compile(rf"^[!-~]([ -~]{{0,{MAX_LENGTH - 2}}}[!-~])?$")


def sent(request: web.Request) -> dict[str, str]:
    """Echo the client's header in the reply; empty if it sent none or an invalid one."""
    return _header(request.headers.get(HEADER, ""))


def of(voices: list[str]) -> dict[str, str]:
    """Build the header of a reply in these voices, one per speaker; empty if there are none, or too many."""
    return _header(",".join(voices))


def _header(value: str) -> dict[str, str]:
    return {HEADER: value} if _SANE.fullmatch(value) else {}
