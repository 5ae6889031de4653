"""Reference audio that is being encoded by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from common.messages import AnyBody, Array, EncodeAudio, Encoded
from gateway.engine.errors import SCHEDULER_LOST, EngineError


class OpenEncode(NamedTuple):
    """A clip, float32 [samples], and its codes to come."""

    samples: Array
    done: asyncio.Future[Array]


class Encodes:
    """The open encodes. A lost scheduler's are sent to the next one, within ``seconds``.

    ``send`` sends a message to the present scheduler, or raises :class:`EngineError` without one.
    """

    def __init__(self, send: Callable[[AnyBody, list[Array]], None], seconds: float) -> None:
        self._send, self._seconds = send, seconds
        self._open: dict[str, OpenEncode] = {}
        self._suspended: set[str] = set()  # of these, whose scheduler was lost

    def __len__(self) -> int:
        return len(self._open)

    async def encode(self, request: str, samples: Array) -> Array:
        """See :meth:`gateway.engine.client.Engine.encode`."""
        self._send(EncodeAudio(request), [samples])
        done: asyncio.Future[Array] = asyncio.get_running_loop().create_future()
        self._open[request] = OpenEncode(samples, done)
        try:
            return await done
        finally:
            del self._open[request]

    def suspend(self) -> None:
        """The scheduler is lost."""
        if self._open:
            self._suspended |= self._open.keys()
            asyncio.get_running_loop().call_later(self._seconds, self._give_up, frozenset(self._open))

    def take_over(self) -> None:
        """There is a scheduler that can serve."""
        for request in self._suspended & self._open.keys():
            self._send(EncodeAudio(request), [self._open[request].samples])
        self._suspended.clear()

    def _give_up(self, requests: frozenset[str]) -> None:
        """No scheduler came in time."""
        for request in requests & self._suspended & self._open.keys():
            if not self._open[request].done.done():
                self._open[request].done.set_exception(EngineError(SCHEDULER_LOST))
        self._suspended -= requests

    def finish(self, body: Encoded, arrays: list[Array]) -> None:
        """A clip was encoded, or could not be."""
        encode = self._open.get(body.request)
        if encode is None or encode.done.done():
            return
        if body.failure is not None:
            encode.done.set_exception(EngineError(body.failure))
        else:
            encode.done.set_result(arrays[0])
