"""Text as it is written, through the running group: at once, in one stream, and with nothing left behind."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest

from tests.integration.client import gather, speak
from tests.integration.group import ROOT, Group, costs, eventually, running

TINY = str(ROOT / "tests" / "data" / "checkpoint_tiny")
TEXT = "The first sentence is a short one. The second one is a little longer. And here is the third of them."
FRAMES = 12  # of each request
TINY_HOP = 2048


@pytest.fixture(scope="module")
def open_group() -> Iterator[Group]:
    """Cost models behind a checkpoint whose requests may be open: each request has the same length."""
    with running("--model", TINY, *costs(ar_worker__cost__frames=FRAMES)) as group:
        yield group
        eventually(group.idle)


@pytest.fixture(scope="module")
def talking_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """The bundled model, made to speak several turns of a conversation; what it says does not matter here."""
    checkpoint = tmp_path_factory.mktemp("checkpoint") / "talking"
    checkpoint.mkdir()
    for file in (ROOT / "models" / "mini").iterdir():
        (checkpoint / file.name).symlink_to(file)
    settings = json.loads((checkpoint / "generation_config.json").read_text())
    (checkpoint / "generation_config.json").unlink()
    (checkpoint / "generation_config.json").write_text(json.dumps(settings | {"turns": None, "turn_bytes": 45}))
    with running("--model", str(checkpoint)) as group:
        yield group
        eventually(group.idle)


class Socket:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.raw = socket
        self.arrivals: list[tuple[float, int]] = []
        self.sound = b""

    async def send(self, event: str, **values: Any) -> None:
        await self.raw.send_bytes(msgspec.msgpack.encode({"event": event} | values))

    async def read(self, *, until: str = "finish") -> dict[str, Any]:
        while True:
            event = msgspec.msgpack.decode((await self.raw.receive(20)).data)
            if event["event"] == "audio":
                self.sound += event["audio"]
                self.arrivals.append((time.monotonic(), len(event["audio"])))
            if event["event"] == until:
                return event


@asynccontextmanager
async def connected(group: Group, **fields: Any) -> AsyncIterator[Socket]:
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{group.base}/v1/tts/live") as raw:
        socket = Socket(raw)
        await socket.send("start", request={"text": "", "format": "pcm", "sample_rate": 44100} | fields)
        yield socket


def test_written_slowly_or_sent_at_once_it_is_the_same_sound(talking_group: Group) -> None:
    """Turns that come one by one into an open request are the turns of one that was whole from the start."""

    async def test() -> None:
        before = talking_group.metric("shoal_requests_finished_total")
        async with connected(talking_group, seed=4, sample_rate=16000) as socket:
            for word in TEXT.split(" "):
                await socket.send("text", text=word + " ")
                await asyncio.sleep(0.05)
            await socket.send("stop")
            assert (await socket.read())["reason"] == "stop"
        assert talking_group.metric("shoal_requests_finished_total") == before + 1
        reply = await speak(talking_group.base, TEXT, seed=4, sample_rate=16000)
        assert len(socket.sound) == 2 * len(reply.samples) > 16000
        written = np.frombuffer(socket.sound, "<i2").astype(int)
        assert np.abs(written - reply.samples).max() <= 1

    asyncio.run(test())


@pytest.mark.parametrize("killed", ["scheduler", "ar_worker", "vocoder_worker"])
def test_a_process_that_dies_while_text_is_written_costs_a_pause(talking_group: Group, killed: str) -> None:
    """The computed model, several turns, and text that comes before, while and after the process is gone."""

    async def test() -> None:
        text = f"{TEXT} {TEXT}"
        reply = await speak(talking_group.base, text, seed=4, sample_rate=16000, streaming=False)
        async with connected(talking_group, seed=4, sample_rate=16000) as socket:
            words = text.split(" ")
            for number, word in enumerate(words):
                await socket.send("text", text=word + " ")
                if number == len(words) // 3:
                    await socket.read(until="audio")
                    talking_group.kill(killed)
                await asyncio.sleep(0.02)
            await socket.send("stop")
            assert (await socket.read())["reason"] == "stop"
        assert len(socket.sound) == 2 * len(reply.samples) > 16000
        written = np.frombuffer(socket.sound, "<i2").astype(int)
        assert np.abs(written - reply.samples).max() <= 1

    asyncio.run(test())
    eventually(talking_group.ready, 60)
    eventually(talking_group.idle)


def test_the_first_sentence_is_heard_before_the_second_is_written(open_group: Group) -> None:
    async def test() -> None:
        async with connected(open_group) as socket:
            await socket.send("text", text="The first sentence. And")
            await socket.read(until="audio")
            await asyncio.sleep(0.5)
            await socket.send("text", text=" the second. ")
            await socket.send("stop")
            await socket.read()
        assert len(socket.sound) == 2 * FRAMES * TINY_HOP

    asyncio.run(test())


def test_breaking_in_frees_the_engine(open_group: Group) -> None:
    async def test() -> None:
        async with connected(open_group) as socket:
            await socket.send("text", text="An open request. ")
            await socket.read(until="audio")
            assert not open_group.idle()
            await socket.send("stop")

    asyncio.run(test())
    eventually(open_group.idle, 2)


def test_many_at_once_are_all_whole(open_group: Group) -> None:
    async def one(number: int) -> int:
        async with connected(open_group, seed=number) as socket:
            for word in TEXT.split(" "):
                await socket.send("text", text=word + " ")
            if number % 2:
                await socket.send("flush")
            await socket.send("stop")
            await socket.read()
            return len(socket.sound)

    assert set(gather(*(one(number) for number in range(16)))) == {2 * FRAMES * TINY_HOP}
    eventually(open_group.idle)


def test_a_long_text_is_spoken_whole(open_group: Group) -> None:
    """20,000 characters, which no context holds: one engine request for each hundred or so of them."""
    text = ("This is one of very many sentences. " * 600)[:20_000]
    before = open_group.metric("shoal_requests_finished_total")
    (reply,) = gather(speak(open_group.base, text, sample_rate=44100))
    assert (reply.status, reply.broken) == (200, False)
    requests = open_group.metric("shoal_requests_finished_total") - before
    assert requests > 10
    assert len(reply.samples) == requests * FRAMES * TINY_HOP


def test_a_paragraph_is_spoken_by_the_bundled_model(mini: Group) -> None:
    """About as long as its words take, sentence by sentence, and without a gap in the samples."""
    text = "The morning was cold. A dog sat by the door and waited. Nobody knew how long it had been there. " * 3
    (reply,) = gather(speak(mini.base, text, seed=1, sample_rate=16000, streaming=False))
    assert reply.headers["X-Finish-Reason"] == "stop"
    seconds = len(reply.samples) / 16000
    assert 0.04 < seconds / len(text) < 0.09
    assert int(reply.headers["X-Frames"]) * 800 == len(reply.samples)
    assert np.sqrt(np.mean((reply.samples / 32768) ** 2)) > 0.01
