"""The imagined device of a cost-model executor: work follows work without a gap as long as there is some."""

from __future__ import annotations

import time


class CostDevice:
    """Sleeps to absolute deadlines, so that a late wake-up does not add up."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def spend(self, seconds: float, ready: float) -> None:
        """Sleep until work of ``seconds`` is done that could begin at ``ready`` (time.monotonic()) or later."""
        self._free_at = max(self._free_at, ready) + seconds
        time.sleep(max(0.0, self._free_at - time.monotonic()))
