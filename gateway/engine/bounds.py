"""Bounds of one engine request: context, turns, and the sound that a text may take."""

from __future__ import annotations

import math
from typing import NamedTuple


class Bounds(NamedTuple):
    """Bounds of an engine request. ``turns``: of one request, None: as many as fit.

    ``open_seconds``: sound for which an open request has room; ``rest_seconds``: how long one is kept open at rest.
    """

    context: int
    frame_rate: float
    turns: int | None
    turn_bytes: int
    floor_seconds: float
    seconds_per_byte: float
    seconds_per_digit: float
    open_seconds: float
    rest_seconds: float

    def seconds(self, text: str) -> float:
        """Longest sound of a text, in seconds."""
        digits = sum(map(str.isdigit, text))
        return self.seconds_per_byte * (len(text.encode()) - digits) + self.seconds_per_digit * digits

    def frames(self, seconds: float) -> int:
        """Most frames of a text that sounds at most ``seconds``."""
        return min(math.ceil(max(self.floor_seconds, seconds) * self.frame_rate), self.context)
