"""Losses of a worker in a row without progress: the grounds for suspecting that a request kills its workers."""

from __future__ import annotations

SUSPECT_AFTER = 2  # losses


class Losses:
    """One per request and kind of worker. ``progress`` grows with all that such a worker does for the request."""

    def __init__(self) -> None:
        self._count = 0
        self._progress = -1  # at the last loss

    def add(self, progress: int) -> int:
        """Count a loss, and those before it if nothing was done since."""
        self._count = self._count + 1 if progress == self._progress else 1
        self._progress = progress
        return self._count

    def suspect(self, progress: int) -> bool:
        """Return whether the request may be what kills its workers."""
        return self._count >= SUSPECT_AFTER and progress == self._progress
