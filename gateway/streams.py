"""What comes back for one request: its frames, as sound or codes, and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

from common.messages import Array, Ended, Failure, FinishReason, FrameSpan


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


class Stream:
    """The chunks of a request, in order, then its end.

    The end is handed out only when as many frames have come as the engine says there are, whichever came last, the
    sound or the word. What is queued here is bounded by the credit the engine has been given.
    """

    def __init__(
        self,
        request: str,
        output: Literal["audio", "codes"],
        give_credit: Callable[[str, int], None],
        on_close: Callable[[str, FinishReason | None], None],
    ) -> None:
        self.request = request
        self.output = output
        self._give_credit, self._on_close = give_credit, on_close
        self._chunks: deque[Chunk] = deque()
        self._received = 0
        self._ended: Ended | None = None
        self._changed = asyncio.Event()
        self._finished = False

    def add(self, span: FrameSpan, data: Array) -> None:
        """Frames have come."""
        if span.first != self._received:
            failure = Failure(500, "frames_lost", f"frame {self._received} is missing")
            self.end(Ended(self.request, "error", self._received, failure))
            return
        self._received += span.frames
        self._chunks.append(Chunk(span.first, span.frames, data))
        self._changed.set()

    def end(self, ended: Ended) -> None:
        """The engine says how the request ends; a failure overrules an end that was said before."""
        if self._ended is None or ended.failure is not None:
            self._ended = ended
        self._changed.set()

    async def next(self) -> Chunk | End:
        """The next chunk, or the end."""
        while True:
            ended = self._ended
            if ended is not None and ended.failure is not None:
                self._finished = True
                return End(ended.reason, ended.frames, ended.failure)
            if self._chunks:
                return self._chunks.popleft()
            if ended is not None and ended.frames == self._received:
                self._finished = True
                return End(ended.reason, ended.frames, None)
            self._changed.clear()
            await self._changed.wait()

    def read_up_to(self, frame: int) -> None:
        """The client has read all frames before ``frame``."""
        if self.output == "audio":
            self._give_credit(self.request, frame)

    def close(self, reason: FinishReason = "cancelled") -> None:
        """Done with it. If the engine is not, it is told to stop, for this reason."""
        self._on_close(self.request, None if self._finished else reason)
