"""Share of the vocoder's time that belongs to the encoding of reference clips."""

from __future__ import annotations

SHARE = 0.1


class EncodeShare:
    """Decides when a clip's next span takes precedence over decode calls that wait.

    Decode calls earn time for the clip, and each span of it spends what it took.
    """

    def __init__(self) -> None:
        self._earned = 0.0  # seconds
        self._span = 0.0  # seconds that the newest span took

    def start(self) -> None:
        """A clip begins: time earned before it came doesn't count."""
        self._earned = 0.0

    def decoded(self, seconds: float) -> None:
        self._earned += seconds * SHARE / (1 - SHARE)

    def encoded(self, seconds: float) -> None:
        self._earned = max(0.0, self._earned - seconds)
        self._span = seconds

    @property
    def due(self) -> bool:
        """Whether a span of the usual length is paid for."""
        return self._earned > 0.0 and self._earned >= self._span
