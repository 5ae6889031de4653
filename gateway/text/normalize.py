"""Text normalisation: numbers, dates and abbreviations as words, for models trained on words only."""

from __future__ import annotations

import re
from collections.abc import Callable

from gateway.checkpoint.prompt import SPEAKER
from gateway.text.english import read_out

LANGUAGES: dict[str, Callable[[str], str]] = {"en": read_out}

_TAG = re.compile(rf"({SPEAKER.pattern}|\[[a-z][a-z \-]{{0,63}}\])")


def normalize(text: str, language: str) -> str:
    """Normalize a text. Speaker tags and cues such as ``[whisper]`` stay unchanged. ``language``: one of LANGUAGES."""
    spoken = LANGUAGES[language]
    parts = [part if index % 2 else _spaced(part, spoken(part)) for index, part in enumerate(_TAG.split(text))]
    return "".join(parts).strip()


def _spaced(text: str, spoken: str) -> str:
    """Keep a space at either end where the text had one."""
    before = " " if text[:1].isspace() else ""
    after = " " if spoken and text[-1].isspace() else ""
    return before + spoken + after
