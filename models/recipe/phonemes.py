"""English text to Kokoro's phonemes, with the phonemes of each word kept apart.

espeak-ng gets whole sentences, since a word sounds different among others ("a", "the"). It writes some neighbours as
one word ("of the" as ``ʌvðə``); these are split again, so that each word of the text has phonemes and times of its own.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

MOST_MERGED = 3  # words of the text that espeak-ng writes as one


def words_and_phonemes(text: str) -> list[tuple[str, str]] | None:
    """Each word of ``text`` (split at white space) with its phonemes, stops included; None if they don't match.

    Raises:
        RuntimeError: the packages of the teacher are missing.
    """
    words = text.split()
    spoken = phonemize(text).split()
    if len(spoken) == len(words):
        return list(zip(words, spoken, strict=True))
    matched = match(words, spoken, cache(phonemize))
    return None if matched is None else list(zip(words, matched, strict=True))


@cache
def _backend() -> Callable[[Any], tuple[str | None, int | None]]:
    try:
        from misaki.espeak import EspeakFallback
    except ImportError as error:
        raise RuntimeError(f"the teacher's phonemizer is missing ({error}): see the README of the recipe") from None
    backend: Callable[[Any], tuple[str | None, int | None]] = EspeakFallback(british=False)
    return backend


class _Token:
    def __init__(self, text: str) -> None:
        self.text = text


def phonemize(text: str) -> str:
    """American English phonemes in Kokoro's alphabet, words separated by spaces."""
    return _backend()(_Token(text))[0] or ""


def match(words: Sequence[str], spoken: Sequence[str], alone: Callable[[str], str]) -> list[str] | None:
    """Phonemes for each of ``words``, from groups ``spoken`` that hold one word or up to MOST_MERGED of them.

    ``alone`` gives the phonemes of a word by itself. Returns None if no such split exists. The split is the one of
    least total distance between the groups and their words as spoken alone (dynamic programming over both).
    """
    best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]  # per group: words used → (distance, words before)
    for group in spoken:
        reached: dict[int, tuple[float, int]] = {}
        for used, (cost, _) in best[-1].items():
            for count in range(1, min(MOST_MERGED, len(words) - used) + 1):
                joined = "".join(alone(word) for word in words[used : used + count])
                total = cost + _distance(group, joined)
                if total < reached.get(used + count, (float("inf"), 0))[0]:
                    reached[used + count] = (total, used)
        best.append(reached)
    if len(words) not in best[-1]:
        return None
    ends = [len(words)]
    for reached in reversed(best[1:]):
        ends.append(reached[ends[-1]][1])
    ends.reverse()
    split: list[str] = []
    for group, (first, last) in zip(spoken, itertools.pairwise(ends), strict=True):
        split += _split(group, [alone(word) for word in words[first:last]])
    return split


def _split(group: str, parts: Sequence[str]) -> list[str]:
    """``group`` cut into as many pieces as there are parts, each as like its part as possible."""
    if len(parts) == 1:
        return [group]
    cuts = range(1, len(group) - len(parts) + 2)
    tail = "".join(parts[1:])
    cut = min(cuts, key=lambda at: _distance(group[:at], parts[0]) + _distance(group[at:], tail), default=0)
    return [group[:cut], *_split(group[cut:], parts[1:])] if cut else [group]


def _distance(a: str, b: str) -> float:
    """Characters that the two do not share, in order."""
    same = sum(block.size for block in difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks())
    return len(a) + len(b) - 2 * same
