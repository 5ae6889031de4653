"""Idempotency keys: a retry means that the client abandoned the first attempt, so the newer request takes over.

A client that retries has given the first up, whatever it says. So with the same ``Idempotency-Key`` from the same
client, the earlier request is cancelled and its place is free before the newer one begins. Only requests under way are
remembered: their number bounds the table, and each leaves it when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.http.errors import ApiError, invalid

HEADER = "Idempotency-Key"
MAX_LENGTH = 255
WAIT_SECONDS = 2.0  # for the earlier request to end
SUPERSEDED = "superseded"  # what the cancellation of an earlier request says


class _Running:
    """The request that currently holds a key."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self.superseded = False
        self.ended = asyncio.Event()

    def supersede(self) -> None:
        self.superseded = True
        self.task.cancel(SUPERSEDED)


class IdempotencyKeys:
    """Running requests with an idempotency key, by client and key."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], _Running] = {}

    @asynccontextmanager
    async def newest(self, client: str, key: str | None) -> AsyncIterator[None]:
        """Hold a key for the current task, until a later request with the same key arrives.

        Raises:
            ApiError: 400: a key that is too long; 409, where it is caught within the block: a later one came.
        """
        if not key:
            yield
            return
        if len(key) > MAX_LENGTH:
            raise invalid(HEADER, f"has more than {MAX_LENGTH} characters")
        task = asyncio.current_task()
        assert task is not None
        own, earlier = _Running(task), self._running.get((client, key))
        self._running[client, key] = own
        try:
            if earlier is not None:
                await _end(earlier)
            yield
        except asyncio.CancelledError:
            if own.superseded and task.uncancel() == 0:
                raise _superseded() from None
            raise
        finally:
            own.ended.set()
            if self._running[client, key] is own:
                del self._running[client, key]


async def _end(earlier: _Running) -> None:
    if not earlier.superseded:
        earlier.supersede()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await earlier.ended.wait()
    except TimeoutError:
        message = "the earlier request with this Idempotency-Key has not ended yet"
        raise ApiError(409, "duplicate_request", message, retry_after=1) from None


def _superseded() -> ApiError:
    message = "a later request with the same Idempotency-Key has taken over"
    headers = {"X-Should-Retry": "false"}  # what OpenAI's clients obey
    return ApiError(409, "superseded", message, reason="cancelled", headers=headers)
