"""Words of a text, and the word errors between two texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.text.normalize import normalize

_SAME = {"oclock": "o'clock", "grey": "gray", "neighbours": "neighbors", "theatre": "theater", "harbour": "harbor"}


def words(text: str) -> list[str]:
    """Splits a text into lower-case words without marks: numbers read out, American spelling."""
    plain = re.sub(r"[^a-z' ]", " ", normalize(text, "en").lower())
    return [_SAME.get(word, word) for word in plain.split()]


def errors(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance between two word sequences."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]
