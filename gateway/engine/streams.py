"""Streams: the frames of one request, as sound or codes, and its end, for one reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

import numpy as np

from common.checkpoint import NUM_CODEBOOKS
from common.messages import Array, Ended, Failure, FinishReason, FrameSpan, Rested


class Chunk(NamedTuple):
    """Frames ``first`` to ``first + frames``. ``data``: sound float32 [frames * hop], or codes int16 [frames, 10]."""

    first: int
    frames: int
    data: Array


class End(NamedTuple):
    """The end, after the last chunk; with a failure, nothing more will come, whatever is missing."""

    reason: FinishReason
    frames: int
    failure: Failure | None


class Pause(NamedTuple):
    """All text so far has been spoken and read, and more may come."""


class Source(Protocol):
    """The source of a reply's frames, which is told how far the client has read."""

    prompt_tokens: int

    @property
    def received(self) -> int: ...

    @property
    def at_rest(self) -> bool: ...

    async def next(self) -> Chunk | Pause | End: ...

    def read_up_to(self, frame: int) -> None: ...

    def close(self, reason: FinishReason = "cancelled") -> None: ...


class Stream:
    """The chunks of a request, in order, then its end.

    The end is handed out only when as many frames have come as the engine says there are, whichever comes last. The
    queue is bounded by the credit that the engine has been given. ``on_hole`` is called when frames come before which
    others are missing, which are then dropped, and tells whether the missing ones will come; without it they will not.
    """

    def __init__(
        self,
        request: str,
        output: Literal["audio", "codes"],
        give_credit: Callable[[str, int], None],
        on_close: Callable[[str, FinishReason | None], None],
        on_extend: Callable[[str, list[Array], bool], None],
        on_hole: Callable[[str], bool] = lambda request: False,
    ) -> None:
        self.request = request
        self.output = output
        self.prompt_tokens = 0
        self.changed = asyncio.Event()  # wakes the reader; several streams may share one
        self._give_credit, self._on_close, self._on_extend = give_credit, on_close, on_extend
        self._on_hole = on_hole
        self._chunks: deque[Chunk] = deque()
        self._received = 0
        self._codes = bytearray()  # of the received frames, int16 [frames, 10]
        self.turn_starts: list[int] = []  # of the received frames, see FrameSpan
        self._extended = 0  # times
        self._rested: int | None = None  # frames in all, until more is said
        self._ended: Ended | None = None
        self._finished = False

    @property
    def received(self) -> int:
        """Frames received."""
        return self._received

    @property
    def at_rest(self) -> bool:
        """Whether all text so far has been spoken and read."""
        return self._rested == self._received and not self._chunks

    @property
    def codes(self) -> Array:
        """Codes of the received frames, int16 [frames, 10], if they came with them."""
        return np.frombuffer(bytes(self._codes), np.int16).reshape(-1, NUM_CODEBOOKS)

    @property
    def drained(self) -> bool:
        """Whether the reader has taken everything that came."""
        return not self._chunks

    @property
    def ended(self) -> bool:
        """Whether the engine has said how it ends; frames may be missing."""
        return self._ended is not None

    @property
    def failed(self) -> bool:
        return self._ended is not None and self._ended.failure is not None

    @property
    def begun(self) -> bool:
        """Whether any frame has come."""
        return self._received > 0

    @property
    def frames(self) -> int:
        """Frames in all, as far as known."""
        return self._received if self._ended is None else self._ended.frames

    @property
    def generated(self) -> bool:
        """Whether the engine has made all frames, and has not failed; sound may still be on its way."""
        ended = self._ended
        return ended is not None and ended.failure is None and ended.reason in ("stop", "length")

    @property
    def complete(self) -> bool:
        """Whether all frames have come, and it is known that there are no more."""
        return self._ended is not None and self._ended.frames == self._received

    def add(self, span: FrameSpan, data: Array, codes: Array | None = None) -> bool:
        """Add frames; the caller wakes the reader (``changed``). ``codes``: int16 [frames, 10]. Whether any were new.

        Frames that came before, from a worker that was lost since, are left out.
        """
        again = min(self._received - span.first, span.frames)
        if again < 0:
            if not self._on_hole(self.request):
                failure = Failure(500, "frames_lost", f"frame {self._received} is missing")
                self.end(Ended(self.request, "error", self._received, failure))
            return False
        new = span.frames - again
        if not new:
            return False
        self.turn_starts += [start for start in span.turn_starts if start >= self._received]
        if codes is not None:
            self._codes += codes[again:].tobytes()
        data = data[len(data) // span.frames * again :]
        self._chunks.append(Chunk(self._received, new, data))
        self._received += new
        return True

    def reopen(self) -> None:
        """Another scheduler continues the request, and will say how it ends."""
        if not self.failed and not self.complete:
            self._ended = None

    def rest(self, rested: Rested) -> None:
        """All text has been spoken, unless more was added since."""
        if rested.extended == self._extended:
            self._rested = rested.frames
            self.changed.set()

    def end(self, ended: Ended) -> None:
        """The engine says how the request ends. A failure replaces an earlier end."""
        if self._ended is None or ended.failure is not None:
            self._ended = ended
        self.changed.set()

    async def next(self) -> Chunk | End:
        """The next chunk, or the end."""
        while True:
            self.changed.clear()
            item = self.poll()
            if item is not None:
                return item
            await self.changed.wait()

    def poll(self) -> Chunk | End | None:
        """The next chunk, or the end, or None: nothing has come yet."""
        ended = self._ended
        if ended is not None and ended.failure is not None:
            self._finished = True
            return End(ended.reason, ended.frames, ended.failure)
        if self._chunks:
            return self._chunks.popleft()
        if ended is not None and self.complete:
            self._finished = True
            return End(ended.reason, ended.frames, None)
        return None

    def extend(self, prompts: list[Array], last: bool) -> None:
        """More turns for a request that is open, int32 [11, positions] each; after the ``last`` it is no longer."""
        self._extended += 1
        self._rested = None
        self._on_extend(self.request, prompts, last)

    def read_up_to(self, frame: int) -> None:
        """Tell the engine that the client has read all frames before ``frame``."""
        if self.output == "audio":
            self._give_credit(self.request, frame)

    def close(self, reason: FinishReason = "cancelled") -> None:
        """Close the stream; an engine request that still runs is stopped for this reason."""
        self._on_close(self.request, None if self._finished else reason)
