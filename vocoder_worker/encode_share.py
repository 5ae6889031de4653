"""Reserves a share of the vocoder's time for encoding reference clips."""

from __future__ import annotations

SHARE = 0.1


class EncodeShare:
    """Decides when a clip's next span takes precedence over waiting decode calls.

    Decode calls earn time for the clip, and each span of it spends what it took.
    """

    def __init__(self) -> None:
        self._earned = 0.0  # seconds
        self._span = 0.0  # seconds that the newest span took

    def start(self) -> None:
        """Note that a clip begins: time earned before does not count."""
        self._earned = 0.0

    def decoded(self, seconds: float) -> None:
        self._earned += seconds * SHARE / (1 - SHARE)

    def encoded(self, seconds: float) -> None:
        self._earned = max(0.0, self._earned - seconds)
        self._span = seconds

    @property
    def due(self) -> bool:
        """Return whether enough time has been earned for a span of the usual length."""
        return self._earned > 0.0 and self._earned >= self._span
