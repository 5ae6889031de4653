"""Lines of the check: what was measured, what was expected, and the verdict."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

Verdict = Literal["pass", "fail", "noted"]


@dataclass(frozen=True)
class Result:
    """One measurement. ``ratio``: measured by expected; none where nothing is expected."""

    what: str
    measured: float | str
    unit: str = ""
    expected: float | None = None
    verdict: Verdict = "noted"

    @property
    def ratio(self) -> float | None:
        """Measured by expected."""
        if self.expected is None or isinstance(self.measured, str):
            return None
        return round(self.measured / self.expected, 3)


@dataclass(frozen=True)
class Context:
    """Surroundings of a check; ``tiny``: on a CPU, with small shapes, and no verdict about speed."""

    device: torch.device
    tiny: bool

    def at_least(self, what: str, measured: float, unit: str, expected: float, share: float) -> Result:
        """Passes from that share of what is expected."""
        return self._judged(what, measured, unit, expected, measured >= share * expected)

    def at_most(self, what: str, measured: float, unit: str, expected: float, times: float) -> Result:
        """Passes up to that multiple of what is expected."""
        return self._judged(what, measured, unit, expected, measured <= times * expected)

    def _judged(self, what: str, measured: float, unit: str, expected: float, good: bool) -> Result:
        if self.tiny:
            return Result(what, measured, unit)
        return Result(what, measured, unit, expected, "pass" if good else "fail")

    def seconds(self, run: Callable[[], object], times: int = 20, warm_ups: int = 5) -> float:
        """Median of a run's time on the device, after warm-ups."""
        if self.tiny:
            times, warm_ups = 2, 1
        for _ in range(warm_ups):
            run()
        return statistics.median(self._once(run) for _ in range(times))

    def _once(self, run: Callable[[], object]) -> float:
        if self.device.type != "cuda":
            started = time.perf_counter()
            run()
            return time.perf_counter() - started
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000
