"""The simulated device of a cost-model executor: work follows work without a gap as long as there is some."""

from __future__ import annotations

import time
from pathlib import Path

HANG_POLL_SECONDS = 0.05


class CostDevice:
    """Sleeps to absolute deadlines, so that a late wake-up does not add up.

    ``hang_file``: work does not end while this file exists; "": no such file.
    """

    def __init__(self, hang_file: str = "") -> None:
        self._free_at = 0.0
        self._hang_file = Path(hang_file) if hang_file else None

    def spend(self, seconds: float, ready: float) -> None:
        """Sleep until work of ``seconds`` is done that could begin at ``ready`` (time.monotonic()) or later."""
        self._free_at = max(self._free_at, ready) + seconds
        time.sleep(max(0.0, self._free_at - time.monotonic()))
        while self._hang_file is not None and self._hang_file.exists():
            time.sleep(HANG_POLL_SECONDS)
