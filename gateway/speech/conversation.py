"""One reply of any length, spoken by one engine request after another; to a door it is one stream.

The turns of a text go into an engine request as long as the worst case of all of them fits into the context. What is
left goes on in a further request of the same voice with the next seed, which is submitted as soon as the one before is
generated, so that its sound is there before that of the first has been played. While a text is still being written, a
request is kept open, so that the next sentence follows on the same pages.
"""

from __future__ import annotations

import asyncio
from collections import deque

import numpy as np

from common.messages import Array, Failure, FinishReason, Sampling, Submit
from gateway.checkpoint.prompt import Prompts
from gateway.engine.bounds import Bounds
from gateway.engine.client import Engine, EngineError
from gateway.engine.streams import Chunk, End, Pause, Stream
from gateway.http.offload import LONG_TO_TOKENISE, aside
from gateway.speech.planner import Plan, Planner, Reply

AHEAD = 2  # engine requests of one reply at a time
PATIENCE = 20  # refusals of a reply that has begun
HOLD_SECONDS = 0.5  # after each of them


class Part:
    """One engine request of a reply. ``first``: the number of its first frame in the reply."""

    def __init__(self, stream: Stream, first: int, plan: Plan, now: float) -> None:
        self.stream, self.first, self.texts = stream, first, plan.texts
        self.open = plan.room > 0
        self.extended = now
        self._room, self._seconds = plan.room, plan.seconds

    def takes(self, positions: int, seconds: float) -> bool:
        """Whether one more turn fits; if so, its place is taken."""
        if positions > self._room or seconds > self._seconds:
            return False
        self._room -= positions
        self._seconds -= seconds
        return True


class Conversation:
    """The reply: :meth:`say` what is to be spoken, :meth:`finish` when that is all, and read on with :meth:`next`."""

    def __init__(self, engine: Engine, prompts: Prompts, reply: Reply, bounds: Bounds) -> None:
        self.prompt_tokens = 0
        self._engine, self._prompts, self._reply, self._bounds = engine, prompts, reply, bounds
        self._planner = Planner(prompts, reply, bounds)
        self._pending: deque[str] = deque()
        self._more = True  # to be said
        self.at_rest = True  # all that was said so far has been spoken and read
        self._parts: deque[Part] = deque()
        self._started = 0
        self._said = 0  # UTF-8 bytes
        self._frames = 0  # of parts that are over
        self._cut = False  # one of them was
        self._refusals, self._hold_until = 0, 0.0
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def received(self) -> int:
        """Frames that have come."""
        return self._frames + sum(part.stream.received for part in self._parts)

    @property
    def _generated(self) -> int:
        """Frames of all parts, which have been generated; some may be on their way."""
        return self._frames + sum(part.stream.frames for part in self._parts)

    @property
    def pending(self) -> int:
        """Characters that no engine request has yet."""
        return sum(map(len, self._pending))

    def say(self, turns: list[str]) -> None:
        """Speak this after what was said before."""
        self.at_rest = False
        self._pending.extend(turns)
        self._said += sum(len(turn.encode()) for turn in turns)
        self._changed.set()

    def finish(self) -> None:
        """Nothing more will be said."""
        self._more = False
        self._changed.set()

    async def advance(self) -> None:
        """Give the engine what it can take now.

        Raises:
            EngineError: the scheduler is not there.
        """
        if self._loop.time() >= self._hold_until:
            self._hold_until = 0.0
        last = self._parts[-1] if self._parts else None
        if last is not None and not last.stream.generated:
            if last.open:
                self._extend(last)
        elif self._pending and len(self._parts) < AHEAD and not self._hold_until:
            if self._planner.left(self._said, self._generated) < 1:
                self._pending.clear()
                self._cut = True
            else:
                await self._start()

    async def next(self) -> Chunk | Pause | End:
        """The next chunk, or that none will come until more is said, or the end."""
        while True:
            self._changed.clear()
            try:
                await self.advance()
            except EngineError as error:
                return End("error", self.received, error.failure)
            item = self._take()
            if item is not None:
                return item
            await self._wait()

    def read_up_to(self, frame: int) -> None:
        """The client has read all frames before ``frame``."""
        for part in self._parts:
            if frame > part.first:
                part.stream.read_up_to(frame - part.first)

    def close(self, reason: FinishReason = "cancelled") -> None:
        """Done with it. If the engine is not, it is told to stop, for this reason."""
        self._more = False
        self._pending.clear()
        for part in self._parts:
            part.stream.close(reason)

    # Reading ---------------------------------------------------------------------------------------------------------

    def _take(self) -> Chunk | Pause | End | None:
        """What has come, if anything."""
        if not self._parts:
            return self._quiet()
        part = self._parts[0]
        item = part.stream.poll()
        if isinstance(item, Chunk):
            return item._replace(first=part.first + item.first)
        if item is None:
            return self._quiet() if part.stream.at_rest else None
        return self._part_over(part, item)

    def _quiet(self) -> Pause | End | None:
        """The engine has nothing to do."""
        if self._pending:
            return None
        if not self._more:
            return End("length" if self._cut else "stop", self._frames, None)
        if self.at_rest:
            return None
        self.at_rest = True
        return Pause()

    def _part_over(self, part: Part, end: End) -> End | None:
        if end.reason == "rejected" and self._may_wait(part, end.failure):
            self._pending.extendleft(reversed(part.texts))
            self._started -= 1  # the next one is this once more, with the same seed
        elif end.failure is not None or end.reason not in ("stop", "length"):
            return end._replace(frames=part.first + end.frames)
        self._parts.popleft()
        part.stream.close()
        self._frames += end.frames
        self._cut |= end.reason == "length"
        self._changed.set()  # look at what is next
        return None

    def _may_wait(self, part: Part, failure: Failure | None) -> bool:
        """Whether a refusal can be waited out: the client hears the reply already."""
        if part.first == 0 or failure is None or failure.retry_after is None or self._refusals == PATIENCE:
            return False
        self._refusals += 1
        self._hold_until = self._loop.time() + HOLD_SECONDS
        return True

    async def _wait(self) -> None:
        """Until something changes, or a time has come."""
        times = [self._rest_ends(part) for part in self._parts if part.open and not part.stream.generated]
        if self._hold_until:  # it may have passed since :meth:`advance` looked
            times.append(self._hold_until)
        try:
            async with asyncio.timeout_at(min(times, default=None)):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _rest_ends(self, part: Part) -> float:
        return part.extended + self._bounds.rest_seconds

    # Asking ----------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        first = self._generated
        texts = list(self._pending)
        long = sum(map(len, texts)) > LONG_TO_TOKENISE
        plan = await aside(long, self._planner.plan, texts, self._more, self._said, first)
        for _ in plan.texts:
            self._pending.popleft()
        reply = self._reply
        sampling = reply.sampling
        if self._started:
            seed = (sampling.seed + self._started + 2**63) % 2**64 - 2**63
            sampling = Sampling(sampling.temperature, sampling.fast_temperature, sampling.top_p, sampling.top_k, seed)
        body = Submit(
            request=f"{reply.request}.{self._started}" if self._started else reply.request,
            output=reply.output,
            streaming=reply.streaming,
            sampling=sampling,
            max_frames=plan.frames,
            turns=[prompt.shape[1] for prompt in plan.prompts],
            deadline=None if self._started else reply.deadline,
            client=reply.client,
            priority=reply.priority,
            open=plan.room > 0,
            room=plan.room,
        )
        stream = self._engine.submit(body, np.concatenate(plan.prompts, axis=1))
        stream.changed = self._changed
        self._changed.set()  # whatever came before this stream told of it
        self._started += 1
        self.prompt_tokens += sum(body.turns)
        self._parts.append(Part(stream, first, plan, self._loop.time()))

    def _extend(self, part: Part) -> None:
        """Give an open request what fits; end it when something does not, when all is said, or when it rested long."""
        prompts: list[Array] = []
        while self._pending:
            prompt = self._prompts.later(self._pending[0])
            if not part.takes(prompt.shape[1], self._bounds.seconds(self._pending[0])):
                break
            part.texts.append(self._pending.popleft())
            prompts.append(prompt)
        now = self._loop.time()
        last = bool(self._pending) or not self._more or now >= self._rest_ends(part)
        if not prompts and not last:
            return
        part.open, part.extended = not last, now
        self.prompt_tokens += sum(prompt.shape[1] for prompt in prompts)
        part.stream.extend(prompts, last)
