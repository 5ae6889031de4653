"""A gateway under test: the real server and doors before a fake engine that the test plays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import uvloop
from prometheus_client import CollectorRegistry

from common.config import Config
from common.config import Gateway as Settings
from common.messages import Array, Ended, Failure, FinishReason, FrameSpan, Rested, Submit
from gateway.checkpoint import served_model
from gateway.checkpoint.bundled_voices import NO_VOICES
from gateway.engine.errors import EngineError
from gateway.engine.streams import Stream
from gateway.observe.metrics import GatewayMetrics
from gateway.server import Server
from gateway.services import Gateway
from gateway.speech.planner import engine_bounds

TESTS = Path(__file__).resolve().parents[2]
TINY = TESTS / "data" / "checkpoint_tiny"
MINI = TESTS.parent / "models" / "mini"
TINY_MODEL = served_model.load(TINY)
_BUNDLED = served_model.load(MINI)
MINI_MODEL = _BUNDLED._replace(defaults=msgspec.structs.replace(_BUNDLED.defaults, turns=1), voices=NO_VOICES)
"""The bundled model, as if it had been taught single turns only, and had no voices."""
HOP, RATE = TINY_MODEL.hop, TINY_MODEL.sample_rate


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test on the event loop the gateway runs on."""
    uvloop.run(asyncio.wait_for(test(), 30))


async def eventually(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until a condition holds, for so many seconds at most."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


def tone(frames: int, first: int = 0) -> Array:
    """Sound float32 [frames * HOP] that does not depend on how it is cut."""
    time = np.arange(first * HOP, (first + frames) * HOP) / RATE
    return (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)


class FakeEngine:
    """Same interface as the engine of the gateway. ``plan`` plays each request that comes."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.submitted: list[tuple[Submit, Array]] = []
        self.streams: list[Stream] = []
        self.encoded: list[Array] = []
        self.credit: list[int] = []
        self.extended: list[tuple[str, list[Array], bool]] = []
        self.closed: list[FinishReason | None] = []
        self.failure: Failure | None = None
        self.plan: Callable[[Player], Coroutine[Any, Any, None]] = speak(3)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        return len(self.streams) - len(self.closed)

    @property
    def waiting(self) -> int:
        return sum(not stream.begun for stream in self.streams) if self.in_flight else 0

    def unready(self) -> dict[str, str]:
        return self.reasons

    def submit(self, body: Submit, prompt: Array) -> Stream:
        if self.failure is not None:
            raise EngineError(self.failure)
        self.submitted.append((body, prompt))
        stream = Stream(
            body.request,
            body.output,
            lambda _, frame: self.credit.append(frame),
            lambda _, reason: self.closed.append(reason),
            lambda request, prompts, last: self.extended.append((request, prompts, last)),
        )
        self.streams.append(stream)
        task = asyncio.create_task(self.plan(Player(stream)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return stream

    async def encode(self, request: str, samples: Array) -> Array:
        if self.failure is not None:
            raise EngineError(self.failure)
        self.encoded.append(samples)
        frames = -(-len(samples) // HOP)
        return (np.arange(10 * frames).reshape(10, frames) % 50).astype(np.int16)

    def close(self) -> None:
        pass


class Player:
    """Plays the engine's part in one request."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.frames = 0

    def give(self, frames: int) -> None:
        audio = self.stream.output == "audio"
        data = tone(frames, self.frames) if audio else codes(frames, self.frames)
        self.stream.add(FrameSpan(self.stream.request, self.frames, frames), data)
        self.stream.changed.set()
        self.frames += frames

    def rest(self, extended: int = 0) -> None:
        """All turns are spoken, those of so many extensions too."""
        self.stream.rest(Rested(self.stream.request, self.frames, extended))

    def end(self, reason: FinishReason = "stop", failure: Failure | None = None) -> None:
        self.stream.end(Ended(self.stream.request, reason, self.frames, failure))


def codes(frames: int, first: int = 0) -> Array:
    """Codes int16 [frames, 10]."""
    return (np.arange(first * 10, (first + frames) * 10).reshape(frames, 10) % 64).astype(np.int16)


def speak(*chunks: int, reason: FinishReason = "stop") -> Callable[[Player], Coroutine[Any, Any, None]]:
    """A plan: chunks of so many frames, then the end."""

    async def plan(player: Player) -> None:
        for frames in chunks:
            player.give(frames)
            await asyncio.sleep(0)
        player.end(reason)

    return plan


def fail(
    frames: int, failure: Failure, reason: FinishReason = "error"
) -> Callable[[Player], Coroutine[Any, Any, None]]:
    """A plan: some frames, then a failure, once the frames have been read."""

    async def plan(player: Player) -> None:
        if frames:
            player.give(frames)
            await asyncio.sleep(0.05)
        player.end(reason, failure)

    return plan


class Client:
    """A client of one gateway under test."""

    def __init__(self, gateway: Gateway, engine: FakeEngine, server: Server, registry: CollectorRegistry) -> None:
        self.gateway, self.engine, self.server, self.registry = gateway, engine, server, registry
        self.http = aiohttp.ClientSession(f"http://{server.address}")
        self.get, self.post, self.delete = self.http.get, self.http.post, self.http.delete


@contextlib.asynccontextmanager
async def serving(
    tmp_path: Path, served: served_model.ServedModel = TINY_MODEL, **settings: Any
) -> AsyncIterator[Client]:
    """A client of a gateway that listens on a free port."""
    config = Config(data_dir=str(tmp_path / "data"), run_dir=str(tmp_path), gateway=Settings(**settings))
    engine = FakeEngine()
    registry = CollectorRegistry()
    bounds = engine_bounds(config, served)
    gateway = Gateway(config, served, engine, GatewayMetrics(registry), bounds)  # type: ignore[arg-type]
    server = Server(gateway)
    await server.start("127.0.0.1", 0)
    client = Client(gateway, engine, server, registry)
    try:
        yield client
    finally:
        await client.http.close()
        await server.close()


async def post(client: Client, path: str = "/v1/tts", **fields: Any) -> tuple[aiohttp.ClientResponse, bytes]:
    """Post fields as JSON; the response and its whole body."""
    async with client.post(
        path, data=msgspec.json.encode(fields), headers={"Content-Type": "application/json"}
    ) as reply:
        return reply, await reply.read()
