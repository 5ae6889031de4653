"""Codes of recordings, cached by the content of the recording."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from cachetools import LRUCache

from common.messages import Array
from gateway.observe.metrics import GatewayMetrics
from gateway.voices.flights import SingleFlight


class Clips:
    """Encodes recordings, each content once, in a least-recently-used cache bounded in bytes.

    The key is the SHA-256 of the file. Only codes are kept, read-only: the text is always that of the request.
    """

    def __init__(self, encode: Callable[[bytes], Awaitable[Array]], limit: int, metrics: GatewayMetrics) -> None:
        """``encode``: of a file, codes int16 [10, frames]. ``limit``: bytes of codes kept."""
        self._encode, self._metrics = encode, metrics
        self._kept: LRUCache[str, Array] = LRUCache(limit, getsizeof=lambda codes: codes.nbytes)
        self._flights: SingleFlight[str, Array] = SingleFlight()

    async def codes(self, audio: bytes) -> Array:
        """Codes int16 [10, frames] of a recording. Raises what ``encode`` does."""
        key = await asyncio.to_thread(digest, audio)
        self._metrics.clip_queries.inc()
        codes = self._kept.get(key)
        if codes is not None:
            self._metrics.clip_hits.inc()
            return codes
        return await self._flights.run(key, lambda: self._encode_new(key, audio))

    def forget(self, key: str) -> None:
        """Drop the codes of a recording, given by its digest."""
        self._kept.pop(key, None)
        self._metrics.clip_bytes.set(self._kept.currsize)

    async def _encode_new(self, key: str, audio: bytes) -> Array:
        codes = await self._encode(audio)
        codes.flags.writeable = False
        if codes.nbytes <= self._kept.maxsize:
            before = len(self._kept) + (key not in self._kept)
            self._kept[key] = codes
            self._metrics.clip_evictions.inc(before - len(self._kept))
            self._metrics.clip_bytes.set(self._kept.currsize)
        return codes


def digest(audio: bytes) -> str:
    """SHA-256 of a recording's file, hexadecimal."""
    return hashlib.sha256(audio).hexdigest()
