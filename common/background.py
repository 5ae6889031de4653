"""Background tasks of an event loop: their failure is logged, since nobody awaits them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


def background(work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Start a task; ``name`` identifies it in the log if it fails. Keep a reference to it."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a background task failed: %s", task.get_name(), exc_info=error)
