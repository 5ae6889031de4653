"""Turns of a conversation, of a length that suits the model."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from gateway.checkpoint.prompt import SPEAKER, split_batches, split_turns
from gateway.text.splitter import size, split


class TurnRules(NamedTuple):
    """``limit``: UTF-8 bytes of a turn, unless a single letter or tag is longer. ``alone``: the model was not taught
    conversations, so that each speaker's turn is spoken by itself."""

    limit: int
    alone: bool


def turns_of(text: str, chunk_length: int, rules: TurnRules) -> list[str]:
    """Split a text into turns. A short text is one unchanged turn.

    A text with speaker tags: batches of at most ``chunk_length`` bytes. Without: as few turns as the limit allows, of
    whole sentences, and as even as can be.
    """
    if SPEAKER.search(text) is None:
        turns = group(split(text, rules.limit), rules.limit)
        return [turn.strip() for turn in turns] if len(turns) > 1 else turns
    if rules.alone:
        return [part for turn in split_turns(text) for part in _tagged(turn, rules.limit)]
    limit = max(rules.limit, chunk_length)
    return [part for batch in split_batches(text, chunk_length) for part in _tagged(batch, limit)]


def group(parts: list[str], limit: int) -> list[str]:
    """Join consecutive parts into groups of at most ``limit`` bytes: as few as possible, then as even as possible."""
    sizes = [size(part) for part in parts]
    fewest = _count(sizes, limit)
    low, high = -(-sum(sizes) // max(1, fewest)), limit
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _count(sizes, middle) <= fewest else (middle + 1, high)
    ends = _ends(sizes, high)
    return ["".join(parts[begin:end]) for begin, end in itertools.pairwise([0, *ends])]


def _count(sizes: list[int], limit: int) -> int:
    return len(_ends(sizes, limit))


def _ends(sizes: list[int], limit: int) -> list[int]:
    """Return the ends of greedily filled groups; a part above the limit is a group of its own."""
    ends: list[int] = []
    total = 0
    for index, length in enumerate(sizes):
        if index and total + length > limit:
            ends.append(index)
            total = 0
        total += length
    return [*ends, len(sizes)] if sizes else []


def _tagged(turn: str, limit: int) -> list[str]:
    """Split a long turn into parts that each carry its tag; several turns in a batch stay together."""
    if size(turn) <= limit or len(SPEAKER.findall(turn)) > 1:
        return [turn]
    found = SPEAKER.match(turn)
    tag = found[0] if found is not None else ""
    room = max(1, limit - size(tag))
    return [tag + part for part in group(split(turn[len(tag) :], room), room)]
