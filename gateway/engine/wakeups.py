"""Whose reader is woken when, of the streams for which sound has come."""

from __future__ import annotations

import asyncio

from gateway.engine.streams import Stream


class Wakes:
    """Wakes one reader per turn of the event loop, for each converts its sound then: so no turn is long.

    Who has their first sound, or the last, does not wait for the others: these have some to play meanwhile.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Stream] = {}  # by request, who has waited longest first

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stream: Stream, first: bool) -> None:
        """Sound has come for a stream, the ``first`` or more."""
        if first or stream.complete:
            stream.changed.set()
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting[stream.request] = stream

    def forget(self, request: str) -> None:
        """Nobody reads this stream any more."""
        self._waiting.pop(request, None)

    def _next(self) -> None:
        if self._waiting:
            self._waiting.pop(next(iter(self._waiting))).changed.set()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
