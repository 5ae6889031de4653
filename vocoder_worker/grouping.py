"""Cuts the items of a call into batches of similar lengths and bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Piece(NamedTuple):
    """A part of an item: ``frames`` frames from frame ``first`` on."""

    item: int
    first: int
    frames: int


def _rounds(frames: Sequence[int], limit: int) -> Iterator[list[Piece]]:
    """Cut items into pieces of at most ``limit`` frames; round r has the r-th piece of each long enough item."""
    for first in range(0, max(frames, default=0), limit):
        yield [Piece(item, first, min(limit, n - first)) for item, n in enumerate(frames) if n > first]


def _groups(pieces: list[Piece], limit: int) -> Iterator[list[Piece]]:
    """Group pieces so that none is shorter than half the longest and rows times the longest stay within ``limit``."""
    group: list[Piece] = []
    for piece in sorted(pieces, key=lambda piece: -piece.frames):
        if group and (2 * piece.frames < group[0].frames or (len(group) + 1) * group[0].frames > limit):
            yield group
            group = []
        group.append(piece)
    yield group


def batches(frames: Sequence[int], limit: int) -> list[list[Piece]]:
    """Cut items of these lengths into batches, to be run in order.

    Each frame is in one piece, the pieces of an item come in order and in different batches, and no batch computes more
    than ``limit`` frames, padding included. At most half of a batch is padding.
    """
    return [group for pieces in _rounds(frames, limit) for group in _groups(pieces, limit)]
