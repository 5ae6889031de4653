"""Ids of voices. Upper and lower case differ, but two voices whose ids differ in nothing else can't both exist."""

from __future__ import annotations

import re

from gateway.http.errors import invalid

VOICE_ID = r"[A-Za-z0-9_\- ]{1,255}"
RULE = "is not 1 to 255 of letters, digits, spaces, - and _"


def is_id(name: str) -> bool:
    return re.fullmatch(VOICE_ID, name) is not None


def check_id(name: str, param: str) -> None:
    """Raises ApiError: 400, naming ``param``: not an id."""
    if not is_id(name):
        raise invalid(param, RULE)
