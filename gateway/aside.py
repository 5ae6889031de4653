"""Work on text: at once where it is short, and otherwise in a thread, so that no turn of the event loop is long.

Going to a thread and back costs more than the work on a sentence or two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

SHORT_TEXT = 150  # characters, that take less than 2 ms

P = ParamSpec("P")
R = TypeVar("R")


async def aside(characters: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The result of work on so many characters."""
    if characters <= SHORT_TEXT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
