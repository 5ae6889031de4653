"""Sound that has come and was not yet handed to its streams."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from common.messages import Array, FrameSpan

Sound: TypeAlias = tuple[FrameSpan, Array]
"""Frames of a request, and their samples."""


class Backlog:
    """A queue in which the first sound of a request goes before all that others wait for: its listener has none yet."""

    def __init__(self) -> None:
        self._first: deque[Sound] = deque()
        self._more: deque[Sound] = deque()

    def __len__(self) -> int:
        return len(self._first) + len(self._more)

    def add(self, span: FrameSpan, samples: Array) -> None:
        (self._more if span.first else self._first).append((span, samples))

    def next(self) -> Sound:
        """Raises IndexError: there is nothing left."""
        return (self._first or self._more).popleft()
