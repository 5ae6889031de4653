"""Budgets of bytes for what the gateway holds for its clients: request bodies, and replies that are not streamed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

from aiohttp import web

from gateway.http.errors import ApiError

SPOOL_BYTES = 1024 * 1024  # of a reply that are kept in memory
BLOCK_BYTES = 256 * 1024  # read from a spool file at a time


class Budget:
    """Bound on the bytes that all holdings have together."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0


class Holding:
    """Bytes held for one request, returned to the budget on exit."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._size = budget, 0

    def grow(self, size: int) -> None:
        """Take more of the budget.

        Raises:
            ApiError: 503: nothing is left.
        """
        budget = self._budget
        if budget.held + size > budget.limit:
            message = "the server holds as many bodies and replies as it may"
            raise ApiError(503, "buffers_full", message, retry_after=5, reason="rejected")
        budget.held += size
        self._size += size

    def release(self) -> None:
        """Return everything to the budget."""
        self._budget.held -= self._size
        self._size = 0

    def __enter__(self) -> Holding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


BODY: web.RequestKey[Holding] = web.RequestKey("body", Holding)
"""Bytes of a request's body, held until its handler ends."""


async def read(request: web.Request) -> bytes:
    """Read a body within the budget.

    Raises:
        ApiError: 503: the budget is spent.
        HTTPRequestEntityTooLarge: it is larger than one body may be.
    """
    content = bytearray()
    async for chunk in request.content.iter_any():
        if len(content) + len(chunk) > request.client_max_size:
            raise web.HTTPRequestEntityTooLarge(request.client_max_size, len(content) + len(chunk))
        request[BODY].grow(len(chunk))
        content += chunk
    return bytes(content)


class Spool:
    """A reply under construction: in memory up to ``SPOOL_BYTES``, then in a file without a name."""

    def __init__(self, memory: Budget, disk: Budget, directory: Path) -> None:
        self.size = 0
        self._memory, self._disk, self._directory = Holding(memory), Holding(disk), directory
        self._buffer = bytearray()
        self._file: IO[bytes] | None = None
        self._open = ExitStack()

    def __enter__(self) -> Spool:
        self._open.enter_context(self._memory)
        self._open.enter_context(self._disk)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    async def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            ApiError: 503: a budget is spent, or the file can't be written.
        """
        self._memory.grow(len(data))
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) > SPOOL_BYTES:
            self._disk.grow(len(self._buffer))
            try:
                await asyncio.to_thread(self._flush)
            except OSError as error:
                message = f"the reply can't be buffered: {error.strerror}"
                raise ApiError(503, "storage_unavailable", message, retry_after=5) from None
            self._memory.release()

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield all bytes, block by block."""
        if self._file is not None:
            self._file.seek(0)
            while block := await asyncio.to_thread(self._file.read, BLOCK_BYTES):
                yield block
        yield bytes(self._buffer)

    def _flush(self) -> None:
        if self._file is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - closed by the stack
            self._file = self._open.enter_context(file)
        self._file.write(self._buffer)
        self._file.flush()
        self._buffer = bytearray()
