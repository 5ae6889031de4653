"""Reading numbers, dates and abbreviations out in words, for models that were taught words only."""

from __future__ import annotations

import re
from collections.abc import Callable

from gateway.checkpoint.prompt import SPEAKER
from gateway.text.english import read_out

LANGUAGES: dict[str, Callable[[str], str]] = {"en": read_out}

_TAG = re.compile(rf"({SPEAKER.pattern}|\[[a-z][a-z \-]{{0,63}}\])")


def normalize(text: str, language: str) -> str:
    """The text in words. Speaker tags and tags such as ``[whisper]`` stay as they are. ``language``: of LANGUAGES."""
    spoken = LANGUAGES[language]
    parts = [part if index % 2 else _spaced(part, spoken(part)) for index, part in enumerate(_TAG.split(text))]
    return "".join(parts).strip()


def _spaced(text: str, spoken: str) -> str:
    """With a space before and behind it where the text had any."""
    before = " " if text[:1].isspace() else ""
    after = " " if spoken and text[-1].isspace() else ""
    return before + spoken + after
