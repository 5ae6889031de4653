"""Codes of recordings, kept by what the recording is and by nothing else."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from common.messages import Array
from gateway.observe.metrics import GatewayMetrics
from gateway.voices.flights import SingleFlight


class Clips:
    """Encodes recordings, the same one once: a bounded cache, least recently used out first.

    The key is the SHA-256 of the file. Only codes are kept, read-only: the text is always that of the request.
    """

    def __init__(self, encode: Callable[[bytes], Awaitable[Array]], limit: int, metrics: GatewayMetrics) -> None:
        """``encode``: of a file, codes int16 [10, frames]. ``limit``: bytes of codes kept."""
        self._encode, self._limit, self._metrics = encode, limit, metrics
        self._kept: OrderedDict[str, Array] = OrderedDict()
        self._size = 0
        self._flights: SingleFlight[str, Array] = SingleFlight()

    async def codes(self, audio: bytes) -> Array:
        """Codes int16 [10, frames] of a recording. Raises what ``encode`` does."""
        key = await asyncio.to_thread(digest, audio)
        self._metrics.clip_queries.inc()
        if key in self._kept:
            self._metrics.clip_hits.inc()
            self._kept.move_to_end(key)
            return self._kept[key]
        return await self._flights.run(key, lambda: self._encode_new(key, audio))

    def forget(self, key: str) -> None:
        """Drop the codes of a recording, given by its digest."""
        if key in self._kept:
            self._size -= self._kept.pop(key).nbytes
            self._metrics.clip_bytes.set(self._size)

    async def _encode_new(self, key: str, audio: bytes) -> Array:
        codes = await self._encode(audio)
        codes.flags.writeable = False
        self._kept[key] = codes
        self._size += codes.nbytes
        while self._size > self._limit:
            self._size -= self._kept.popitem(last=False)[1].nbytes
        self._metrics.clip_bytes.set(self._size)
        return codes


def digest(audio: bytes) -> str:
    """SHA-256 of a recording's file, hexadecimal."""
    return hashlib.sha256(audio).hexdigest()
