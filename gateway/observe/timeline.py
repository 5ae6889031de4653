"""Timelines of speech requests as the gateway sees them.

Times are seconds of the monotonic clock, which the scheduler's records share.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from common.messages import FinishReason
from gateway.observe.trace_context import TraceContext

MAX_CHUNKS = 512  # of one request, that are kept; the others are counted

RECORDING = "recording"
_SALT = os.urandom(16)  # of this process, so that hashes can't be compared with those of guessed names


class ChunkRecord(Struct):
    """Sound of ``frames`` frames from ``first`` on, in ``size`` bytes, that lasts ``seconds``; ready ``at``.

    ``sent``: the socket had it.
    ``late``: seconds after the sound before it had run out; None where nobody listens to a stream.
    """

    at: float
    first: int
    frames: int
    size: int
    seconds: float
    late: float | None = None
    sent: float | None = None

    def facts(self) -> dict[str, Any]:
        """Return the fields of the record that every report shows."""
        late = None if self.late is None else round(self.late * 1000, 3)
        return {"first": self.first, "frames": self.frames, "bytes": self.size, "late_ms": late}


class Timeline:
    """Timeline of one request from ``received`` to its end, without its text. ``voice``: a hash.

    ``begun``: when there was something to speak, which may be later where text comes while it is written.
    """

    def __init__(
        self, request_id: str, trace: TraceContext, engine_request: str, api: str, sound_format: str, received: float
    ) -> None:
        self.request_id, self.trace, self.engine_request = request_id, trace, engine_request
        self.api, self.format = api, sound_format
        self.received = self.begun = received
        self.wall = time.time() - time.monotonic()  # to add for seconds since 1970
        self.voice = ""
        self.characters = 0
        self.streaming = False
        self.chunks: list[ChunkRecord] = []
        self.chunk_count = 0
        self.frames, self.size, self.seconds = 0, 0, 0.0
        self.late: float | None = None  # seconds in all; None where nobody listens to a stream
        self.first_sound: float | None = None
        self.ended: float | None = None
        self.reason: FinishReason | None = None
        self.error: str | None = None

    def asked(self, characters: int, streaming: bool, voices: list[str] | None) -> None:
        """Record what is to be spoken; ``voices`` is None for recordings that come with the request."""
        self.characters, self.streaming = characters, streaming
        self.voice = RECORDING if voices is None else voice_hash(voices)

    def chunk(self, frames: int, size: int, seconds: float) -> None:
        """Record sound or codes that are ready to be sent."""
        record = ChunkRecord(time.monotonic(), self.frames, frames, size, seconds)
        if self.first_sound is None:
            self.first_sound = record.at
        self.frames, self.size, self.seconds = self.frames + frames, self.size + size, self.seconds + seconds
        self.chunk_count += 1
        if self.chunk_count <= MAX_CHUNKS:
            self.chunks.append(record)

    def lateness(self, seconds: float) -> None:
        """Record the lateness of the newest chunk."""
        self.late = seconds if self.late is None else self.late + seconds
        if self.chunk_count <= MAX_CHUNKS:
            self.chunks[-1].late = seconds

    def sent(self) -> None:
        """Record that the socket has accepted the newest chunk."""
        if self.chunk_count <= MAX_CHUNKS:
            self.chunks[-1].sent = time.monotonic()

    def end(self, reason: FinishReason, error: str | None) -> None:
        """Record the end. ``error``: the error code that the client was told, if any."""
        self.ended, self.reason, self.error = time.monotonic(), reason, error

    @property
    def until(self) -> float:
        """Time of the end, or now."""
        return time.monotonic() if self.ended is None else self.ended

    @property
    def first_sound_seconds(self) -> float | None:
        """Time to first audio of a streamed reply."""
        return None if self.first_sound is None or not self.streaming else self.first_sound - self.begun

    def summary(self) -> dict[str, Any]:
        """Return the request in numbers, for the log and the listing."""
        took = self.until - self.received
        first = self.first_sound_seconds
        return {
            "request_id": self.request_id,
            "trace_id": self.trace.trace_id,
            "engine_request": self.engine_request,
            "api": self.api,
            "format": self.format,
            "voice_hash": self.voice,
            "chars": self.characters,
            "seconds": round(took, 4),
            "ttfa_ms": None if first is None else round(first * 1000, 1),
            "audio_s": round(self.seconds, 4),
            "rtf": round(took / self.seconds, 4) if self.seconds else None,
            "frames": self.frames,
            "chunks": self.chunk_count,
            "underrun_ms": None if self.late is None else round(self.late * 1000, 1),
            "outcome": self.reason,
            "error": self.error,
        }


class Timelines:
    """Timelines of running requests and of the last ``most`` finished ones."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._running: dict[str, Timeline] = {}
        self._ended: deque[Timeline] = deque(maxlen=most)
        self.ended = 0  # since the start

    def begin(self, timeline: Timeline) -> None:
        self._running[timeline.engine_request] = timeline

    def end(self, timeline: Timeline) -> None:
        self._ended.append(self._running.pop(timeline.engine_request))
        self.ended += 1

    def __iter__(self) -> Iterator[Timeline]:
        """Iterate by arrival, newest first."""
        return iter(sorted([*self._running.values(), *self._ended], key=lambda one: one.received, reverse=True))

    def last(self, count: int) -> list[Timeline]:
        """Return up to ``count`` requests that ended last, in the order of their ends."""
        return list(self._ended)[-count:] if count else []

    def find(self, name: str) -> Timeline | None:
        """Find by request id or engine request id; the newest if a client reused an id."""
        return next((one for one in self if name in (one.request_id, one.engine_request)), None)

    def within(self, since: float, until: float) -> list[Timeline]:
        """Return the requests that ran between two times, newest first."""
        return [one for one in self if one.received <= until and (one.ended is None or one.ended >= since)]


def voice_hash(voices: Iterable[str]) -> str:
    """Hash voice ids, so that voices can be told apart without their names; "" for none. Holds until a restart."""
    names = ",".join(voices)
    return hashlib.blake2b(names.encode(), digest_size=6, key=_SALT).hexdigest() if names else ""
