"""Runs work in a thread if it exceeds a size threshold, inline otherwise, so that no event-loop turn is long.

Going to a thread and back costs more than the work on a sentence or two. What is long differs by the work:
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

LONG_TO_TOKENISE = 150  # characters, that take less than 2 ms
LONG_TO_SPLIT = 1_000  # characters of a script
LONG_TO_DECODE = 256 * 1024  # bytes of a body or message

P = ParamSpec("P")
R = TypeVar("R")


async def offload(long: bool, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of work that runs in a thread if it is ``long``."""
    return await asyncio.to_thread(work, *args, **kwargs) if long else work(*args, **kwargs)
