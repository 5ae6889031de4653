"""Wakes stream readers one per event-loop turn, so that no turn takes long."""

from __future__ import annotations

import asyncio

from gateway.engine.streams import Stream


class ReaderWakeups:
    """Wakes one reader per event-loop turn, since each reader then encodes its sound.

    Who has their first sound, or the last, does not wait for the others: these have some to play meanwhile.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Stream] = {}  # by request, who has waited longest first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stream: Stream, first: bool) -> None:
        """Queue the reader of a stream for which sound has arrived; ``first``: its first sound, which goes ahead."""
        if first or stream.complete:
            stream.changed.set()
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting[stream.request] = stream

    def forget(self, request: str) -> None:
        """Remove a stream that has no reader any more."""
        self._waiting.pop(request, None)

    def _next(self) -> None:
        if self._waiting:
            self._waiting.pop(next(iter(self._waiting))).changed.set()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
