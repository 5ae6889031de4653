"""Voice ids. They are case-sensitive, but two voices whose ids differ only in case can't both exist."""

from __future__ import annotations

import re

from gateway.errors import InvalidFieldError

VOICE_ID = r"[A-Za-z0-9_\- ]{1,255}"
RULE = "is not 1 to 255 of letters, digits, spaces, - and _"


def is_id(name: str) -> bool:
    return re.fullmatch(VOICE_ID, name) is not None


def check_id(name: str, param: str) -> None:
    """Raises InvalidFieldError, naming ``param``: not an id."""
    if not is_id(name):
        raise InvalidFieldError(param, RULE)
