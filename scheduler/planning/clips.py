"""Reference clips that wait to be encoded: a bounded queue, one clip at a time per vocoder worker."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from common.messages import Array, Failure


class Clip(NamedTuple):
    """``samples``: float32 [samples] at the codec's rate."""

    gateway: str
    request: str
    samples: Array


class Encodes:
    """The queue. ``bound``: clips that may wait."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._clips: deque[Clip] = deque()

    def __len__(self) -> int:
        return len(self._clips)

    def add(self, clip: Clip) -> Failure | None:
        """Queue a clip, or say why not."""
        if len(self._clips) >= self._bound:
            return Failure(429, "queue_full", f"{len(self._clips)} clips wait to be encoded", retry_after=2)
        self._clips.append(clip)
        return None

    def next(self) -> Clip:
        """The clip that has waited longest.

        Raises:
            IndexError: none waits.
        """
        return self._clips.popleft()

    def forget(self, gateway: str) -> None:
        """A gateway has gone, and its clips with it."""
        self._clips = deque(clip for clip in self._clips if clip.gateway != gateway)
