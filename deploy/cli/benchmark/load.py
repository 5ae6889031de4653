"""Load generation: sends requests on schedule and records their outcomes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import aiohttp

from deploy.cli.benchmark.dialects import Dialect
from deploy.cli.benchmark.listener import Heard, Listener
from deploy.cli.benchmark.prompts import Prompts
from deploy.cli.server import Server, words
from deploy.cli.sound import Kind, SoundError, SoundStream

LAG_SECONDS = 0.01  # how often the client looks at its own punctuality

Speak: TypeAlias = Callable[[str], Awaitable[Heard]]
One: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Notice: TypeAlias = Callable[[Heard | None], None]  # None: a request has been sent; else it is done


class Load(NamedTuple):
    """A run: a closed loop of ``concurrency`` clients, or Poisson arrivals of ``rate`` per second.

    It ends after so many ``requests``, or, with ``seconds``, sends nothing new after them.
    """

    concurrency: int | None
    rate: float | None
    requests: int
    seconds: float | None

    @property
    def name(self) -> str:
        return f"{self.concurrency} at once" if self.concurrency else f"{self.rate:g}/s"


@dataclass
class Outcome:
    """Outcome of a run. ``wall``: seconds from first request to last end. ``lag``: lateness of the client's timer."""

    heard: list[Heard] = field(default_factory=list)
    wall: float = 0.0
    lag: list[float] = field(default_factory=list)


class Speaker:
    """Sends requests of one kind and measures the replies."""

    def __init__(
        self, server: Server, session: aiohttp.ClientSession, dialect: Dialect, kind: Kind, rate: int | None, **ask: Any
    ) -> None:
        self._url, self._session = server.address + dialect.path, session
        self._dialect, self._kind, self._rate = dialect, kind, rate
        self._voice, self._model, self._more, self._limit = ask["voice"], ask["model"], ask["more"], ask["time_limit"]

    async def __call__(self, text: str) -> Heard:
        heard = Heard()
        fields = self._dialect.fields(text, self._kind, self._voice, self._model) | self._more
        try:
            async with asyncio.timeout(self._limit):
                await self._listen(fields, heard)
        except TimeoutError:
            heard.error = f"not done within {self._limit:g} s"
        except (aiohttp.ClientError, ConnectionError, SoundError) as error:
            heard.error = f"{type(error).__name__}: {error}"
        return heard

    async def _listen(self, fields: dict[str, Any], heard: Heard) -> None:
        start = time.perf_counter()
        async with self._session.post(self._url, json=fields) as reply:
            heard.status = reply.status
            if reply.status != 200:
                heard.error = f"{reply.status}: {words(await reply.read(), reply.reason)}"
                return
            heard.first_byte = time.perf_counter() - start
            sound = SoundStream(self._kind, dict(reply.headers), self._rate or self._dialect.default_rate)
            listener = Listener(heard, sound)
            async for data in reply.content.iter_any():
                listener.receive(data, time.perf_counter() - start)
            listener.end(time.perf_counter() - start)


async def put(load: Load, speak: Speak, prompts: Prompts, seed: int, notice: Notice) -> Outcome:
    """Run a load to its end."""
    outcome = Outcome()

    async def one() -> None:
        notice(None)
        heard = await speak(prompts.next())
        outcome.heard.append(heard)
        notice(heard)

    watch = asyncio.create_task(_watch(outcome.lag))
    start = time.perf_counter()
    try:
        await (_closed(load, one) if load.concurrency else _poisson(load, one, seed))
    finally:
        watch.cancel()
    outcome.wall = time.perf_counter() - start
    return outcome


async def _closed(load: Load, one: One) -> None:
    """Closed loop: each client sends its next request when the previous one has ended."""
    turns = _turns(load)

    async def client() -> None:
        for _ in turns:
            await one()

    async with asyncio.TaskGroup() as clients:
        for _ in range(load.concurrency or 0):
            clients.create_task(client())


async def _poisson(load: Load, one: One, seed: int) -> None:
    """Open loop: requests arrive whether or not earlier ones have ended."""
    draw, due = random.Random(seed), time.perf_counter()
    async with asyncio.TaskGroup() as requests:
        for _ in _turns(load):
            requests.create_task(one())
            due += draw.expovariate(load.rate or 0.0)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))


def _turns(load: Load) -> Iterator[int]:
    """Yield once per request that may be sent; shared by all clients."""
    end = None if load.seconds is None else time.perf_counter() + load.seconds
    count = 0
    while (count < load.requests) if end is None else (time.perf_counter() < end):
        yield count
        count += 1


async def _watch(lag: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(LAG_SECONDS)
        lag.append(max(0.0, time.perf_counter() - before - LAG_SECONDS))
