"""Counts of kernel launches and of fall-backs to the eager twins."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Literal

log = logging.getLogger(__name__)

calls: Counter[tuple[str, Literal["kernel", "eager"]]] = Counter()
"""Calls that the host made, by function and path; a captured call counts once, however often it is replayed."""


def launched(op: str) -> None:
    """Count a call that a kernel serves."""
    calls[op, "kernel"] += 1


def fell_back(op: str, reason: str) -> None:
    """Count a call that the eager twin serves, and warn at the first one."""
    calls[op, "eager"] += 1
    if calls[op, "eager"] == 1:
        log.warning("runs without its kernel", extra={"op": op, "cause": reason})


def totals() -> dict[str, float]:
    """Calls by path, of all functions."""
    counted = {"kernel": 0.0, "eager": 0.0}
    for (_, path), number in list(calls.items()):
        counted[path] += number
    return counted
