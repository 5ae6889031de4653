"""The interface of a teacher: speech with the times of its phones and words."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from common.messages import Array


class Word(NamedTuple):
    """A word as it stands in the text, and when it is spoken."""

    text: str
    begin: float  # seconds
    end: float


class Speech(NamedTuple):
    """A text as spoken by a teacher."""

    sound: Array  # int16 [n]
    phones: Array  # int64 [p], index into the teacher's phones
    phone_ends: Array  # float64 [p], seconds
    words: list[Word]


class Teacher(Protocol):
    """A synthesizer that the recipe learns from. It speaks a text the same way each time."""

    sample_rate: int
    voices: tuple[str, ...]
    phones: tuple[str, ...]

    def speak(self, text: str, voice: str) -> Speech:
        """Speak an English sentence in one of ``voices``."""
        ...
