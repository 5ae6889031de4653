"""History of one request: its turns and the frames drawn so far, enough to continue it on another AR worker."""

from __future__ import annotations

import itertools

import numpy as np

from common.checkpoint import NUM_CODEBOOKS
from common.messages import REPETITION_WINDOW, Array

_ROW = NUM_CODEBOOKS * 2  # bytes of a frame


class History:
    """Turns of prompt, int32 [11, positions] each, and the frames drawn after each of them.

    After the loss of an AR worker, :meth:`merge` makes one first turn of all that was spoken so far.
    """

    def __init__(self, turns: list[Array], codes: bytes = b"") -> None:
        self.turns = turns
        self.turn = 0  # the current one
        self.frames = len(codes) // _ROW
        self.repetition_window: list[int] | None = None  # main tokens of the current turn, if it is being continued
        self.turn_starts: list[int] = []  # number of the first frame of each turn after the first, merged ones included
        self._codes = bytearray(codes)  # int16 [frames, 10]: appending takes a tenth of the time that an array takes
        self._first_frames = [0]  # number of the first frame drawn after each turn's prompt
        self._turn_began = 0  # frames when the current turn began

    @classmethod
    def received(cls, turns: list[Array], codes: Array, turn_starts: list[int]) -> History:
        """History of a request that another scheduler began. ``codes``: int16 [frames, 10]; see :class:`FrameSpan`."""
        history = cls(turns, codes.astype(np.int16, copy=False).tobytes())
        history.turn = len(turn_starts)
        history.turn_starts = list(turn_starts)
        history._first_frames = [0, *turn_starts]
        history._turn_began = history._first_frames[-1]
        return history

    @property
    def prompt(self) -> Array:
        """Prompt of the current turn, int32 [11, positions]."""
        return self.turns[self.turn]

    @property
    def prompt_tokens(self) -> int:
        """Positions of all turns that are here."""
        return sum(turn.shape[1] for turn in self.turns)

    @property
    def replayed(self) -> int:
        """Frames that are part of the first prompt."""
        return self._first_frames[0]

    @property
    def has_next_turn(self) -> bool:
        return self.turn + 1 < len(self.turns)

    def append(self, codes: bytes) -> None:
        """Add a frame. ``codes``: the bytes of int16 [10]."""
        self._codes += codes
        self.frames += 1

    def codes(self, first: int, frames: int) -> Array:
        """Frames from ``first`` on, int16 [frames, 10]."""
        data = bytes(self._codes[first * _ROW : (first + frames) * _ROW])
        return np.frombuffer(data, np.int16).reshape(-1, NUM_CODEBOOKS)

    def turn_starts_in(self, first: int, frames: int) -> list[int]:
        """The first frames of turns that begin within a span of frames."""
        return [start for start in self.turn_starts if first <= start < first + frames]

    def next_turn(self) -> None:
        """Begin the next turn."""
        self.turn += 1
        self.repetition_window = None
        self._first_frames.append(self.frames)
        self.turn_starts.append(self.frames)
        self._turn_began = self.frames

    def merge(self, semantic_begin: int) -> None:
        """Make one prompt of all that was spoken so far, for a new AR worker that continues the current turn.

        ``semantic_begin``: main token of a frame whose first code is 0.
        """
        drawn = self.codes(self._turn_began, self.frames - self._turn_began)[:, 0] + np.int32(semantic_begin)
        self.repetition_window = drawn[1:][-REPETITION_WINDOW:].tolist() if drawn.size else None
        self.turns = [self._spoken(semantic_begin), *self.turns[self.turn + 1 :]]
        self.turn = 0
        self._first_frames = [self.frames]

    def _spoken(self, semantic_begin: int) -> Array:
        """The turns up to the current one, each with the frames drawn after it. int32 [11, positions]"""
        parts: list[Array] = []
        spans = itertools.pairwise([*self._first_frames, self.frames])
        for turn, (first, end) in zip(self.turns, spans, strict=False):
            codes = self.codes(first, end - first).T.astype(np.int32)
            parts += [turn, np.concatenate([codes[:1] + semantic_begin, codes])]
        return np.concatenate(parts, axis=1)


def split_turns(turns: list[int], prompt: Array) -> list[Array]:
    """Cut a prompt, int32 [11, T], into turns of these numbers of positions."""
    return np.split(prompt, np.cumsum(turns)[:-1], axis=1) if turns else []
