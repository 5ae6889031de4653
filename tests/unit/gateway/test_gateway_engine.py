"""The engine client under faults: a scheduler and a vocoder worker that the test plays, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from gateway_fakes import eventually, run
from prometheus_client import CollectorRegistry

from common import transport
from common.config import Config, resolve
from common.messages import (
    Attach,
    Attached,
    Audio,
    Body,
    Cancel,
    Codes,
    Detached,
    Disowned,
    EncodeAudio,
    Encoded,
    Ended,
    Extend,
    FrameSpan,
    GatewayHello,
    GroupState,
    Message,
    Ping,
    Rested,
    Resume,
    Sampling,
    Submit,
    Vocode,
    VocoderAddress,
    Welcome,
    pack,
    unpack,
)
from common.process import Process
from common.transport import Context
from gateway.engine import recovery
from gateway.engine.client import Engine
from gateway.engine.errors import SCHEDULER_LOST, EngineError
from gateway.engine.streams import Chunk, End, Stream

T = TypeVar("T")
HOP = 4
GATEWAY = "gateway-1"


def codes_of(first: int, frames: int) -> np.ndarray:
    return (np.arange(first * 10, (first + frames) * 10).reshape(frames, 10) % 1000).astype(np.int16)


class Peer:
    """A ROUTER that the test plays, as one incarnation after another."""

    def __init__(self, context: Context, endpoint: str, incarnation: str) -> None:
        self.incarnation = incarnation
        self._router, self.endpoint = context.router(endpoint)
        self._waiting: list[Message] = []

    def send(self, body: Body, *arrays: np.ndarray, source: str = "") -> None:
        frames = pack(body, arrays, source=source or self.incarnation, target=GATEWAY)  # type: ignore[arg-type]
        transport.send(self._router, frames, GATEWAY)

    async def next(self, kind: type[T]) -> tuple[T, list[np.ndarray]]:
        """The next message of this kind; others are kept for later."""
        async with asyncio.timeout(5):
            while True:
                while (frames := transport.receive(self._router)) is not None:
                    self._waiting.append(unpack(frames[1:]))
                for message in self._waiting:
                    if isinstance(message.body, kind):
                        self._waiting.remove(message)
                        return message.body, message.arrays
                await asyncio.sleep(0.005)

    def close(self) -> None:
        self._router.close()


class Group:
    """An engine client, and the group that the test plays before it."""

    def __init__(self, run_dir: Path, *settings: str) -> None:
        config: Config = resolve(None, [f"run_dir={run_dir}", *settings])
        self.registry = CollectorRegistry()
        self._context, self._run_dir = Context(), run_dir
        process = Process("gateway", config, run_dir, GATEWAY, self.registry, {}, 0)
        self.scheduler = Peer(self._context, transport.scheduler_endpoint(config), "scheduler-1")
        self.vocoder = Peer(self._context, transport.ipc_endpoint(run_dir, "audio-1"), "vocoder-1")
        self.engine = Engine(process, self._context)

    async def start(self) -> None:
        await self.scheduler.next(GatewayHello)
        await self.welcome()

    async def welcome(self) -> None:
        """The scheduler registers the gateway, and the group is ready once the gateway has attached."""
        self.scheduler.send(Welcome())
        self.tell_state()
        if self.vocoder.incarnation not in self.engine._vocoders.attached:
            await self.attach()
        await self.scheduler.next(Attached)
        assert self.engine.unready() == {}

    async def attach(self) -> None:
        await self.vocoder.next(Attach)
        self.vocoder.send(Attached(self.vocoder.incarnation))

    def tell_state(self, vocoders: bool = True) -> None:
        address = VocoderAddress("vocoder_worker", self.vocoder.incarnation, self.vocoder.endpoint)
        self.scheduler.send(GroupState(vocoders, {"ar_worker": "ready"}, [address] if vocoders else []))

    async def restart_scheduler(self) -> None:
        """The scheduler gives the gateway up, as the next incarnation would have it register."""
        self.scheduler.send(Disowned())
        await self.scheduler.next(GatewayHello)
        self.scheduler.incarnation = "scheduler-2"
        await self.welcome()

    async def submit(self, request: str = "r", output: str = "audio", **fields: object) -> Stream:
        values = {"streaming": True, "max_frames": 100, "turns": [2, 1], "deadline": None} | fields
        body = Submit(request, output, sampling=Sampling(0.8, 0.8, 0.8, 30, 7), **values)  # type: ignore[arg-type]
        stream = self.engine.submit(body, np.arange(33, dtype=np.int32).reshape(11, 3))
        await self.scheduler.next(Submit)
        return stream

    def sound(self, first: int, frames: int, *starts: int, request: str = "r", scheduler: str = "") -> None:
        """Frames of sound whose samples are their frame's number."""
        samples = np.repeat(np.arange(first, first + frames, dtype=np.float32), HOP)
        body = Audio([FrameSpan(request, first, frames, list(starts))], scheduler or self.scheduler.incarnation)
        self.vocoder.send(body, codes_of(first, frames), samples)

    def metric(self, cause: str) -> float:
        return self.registry.get_sample_value("shoal_stream_resumes_total", {"cause": cause}) or 0.0

    def close(self) -> None:
        self.engine.close()
        self._context.close()


@contextlib.asynccontextmanager
async def group(run_dir: Path, *settings: str) -> AsyncIterator[Group]:
    one = Group(run_dir, *settings)
    try:
        await one.start()
        yield one
    finally:
        one.close()


async def read(stream: Stream, frames: int) -> None:
    """Read so many frames; they must be those that come next."""
    first = stream_position(stream)
    while stream_position(stream) < first + frames:
        item = await asyncio.wait_for(stream.next(), 5)
        assert isinstance(item, Chunk), item
        expected = np.repeat(np.arange(item.first, item.first + item.frames, dtype=np.float32), HOP)
        assert np.array_equal(item.data, expected) or stream.output == "codes"
        stream.position = item.first + item.frames  # type: ignore[attr-defined]


def stream_position(stream: Stream) -> int:
    return getattr(stream, "position", 0)


def test_the_next_scheduler_gets_the_request_with_all_that_was_added_and_the_frames_that_are_here(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            stream = await one.submit(open=True, room=10)
            stream.extend([np.full((11, 4), 9, np.int32), np.full((11, 2), 8, np.int32)], last=False)
            await one.scheduler.next(Extend)
            one.sound(0, 3)
            one.sound(3, 4, 5)
            await read(stream, 7)
            await one.restart_scheduler()
            resume, (prompt, codes) = await one.scheduler.next(Resume)
            assert isinstance(resume.what, Submit)
            assert (resume.what.turns, resume.what.room, resume.what.open) == ([2, 1, 4, 2], 4, True)
            assert (resume.received, resume.extensions, resume.turn_starts) == (7, 1, [5])
            assert prompt.shape == (11, 9)
            assert np.array_equal(codes, codes_of(0, 7))
            one.sound(7, 2)
            await read(stream, 2)
            stream.extend([], last=True)
            await one.scheduler.next(Extend)
            one.scheduler.send(Ended("r", "stop", 9))
            assert await stream.next() == End("stop", 9, None)
            assert one.metric("scheduler") == 1
            assert one.registry.get_sample_value("shoal_stream_fault_pause_seconds_count") == 1

    run(test)


def test_sound_of_the_scheduler_that_was_lost_counts_until_the_next_one_is_asked_and_no_longer(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            stream = await one.submit()
            one.sound(0, 2)
            await read(stream, 2)
            one.scheduler.send(Disowned())
            await one.scheduler.next(GatewayHello)
            one.sound(2, 2)  # it was on its way
            await read(stream, 2)
            one.scheduler.incarnation = "scheduler-2"
            await one.welcome()
            assert (await one.scheduler.next(Resume))[0].received == 4
            one.sound(4, 3, scheduler="scheduler-1")  # this is too late
            one.sound(4, 1)
            await read(stream, 1)
            await asyncio.sleep(0.05)
            assert stream.received == 5

    run(test)


def test_a_gateway_that_is_disowned_twice_registers_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            one.scheduler.send(Disowned())
            one.scheduler.send(Disowned())
            await one.scheduler.next(GatewayHello)
            await one.welcome()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await one.scheduler.next(GatewayHello)

    run(test)


def test_streams_that_clients_hear_come_first_then_the_others_in_their_order(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            for name in "abc":
                await one.submit(name)
            stream = one.engine.submit_codes("d", "", codes_of(0, 6).T)
            await one.scheduler.next(Vocode)
            one.sound(0, 1, request="c")
            await eventually(lambda: one.engine.waiting == 3)
            await one.restart_scheduler()
            resumed = [(await one.scheduler.next(Resume))[0] for _ in range(4)]
            assert [resume.what.request for resume in resumed] == ["c", "a", "b", "d"]
            assert isinstance(resumed[3].what, Vocode)
            one.sound(0, 6, request="d")
            await read(stream, 6)

    run(test)


def test_codes_are_kept_for_the_next_scheduler_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            stream = await one.submit(output="codes")
            for frame in range(3):
                spans = [FrameSpan("r", frame, 1, [2] if frame == 2 else [])]
                one.scheduler.send(Codes(spans), codes_of(frame, 1))
            await read(stream, 3)
            await one.restart_scheduler()
            resume, (_, codes) = await one.scheduler.next(Resume)
            assert (resume.received, resume.turn_starts) == (3, [2])
            assert np.array_equal(codes, codes_of(0, 3))

    run(test)


def test_without_a_scheduler_in_time_a_stream_ends_with_an_error_that_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path, "scheduler.recovery_seconds=0.2") as one:
            stream = await one.submit()
            encode = asyncio.create_task(one.engine.encode("e", np.zeros(8, np.float32)))
            await one.scheduler.next(EncodeAudio)
            one.scheduler.send(Disowned())
            item = await asyncio.wait_for(stream.next(), 5)
            assert isinstance(item, End)
            assert item.failure is not None
            assert (item.failure.status, item.failure.code) == (503, "scheduler_lost")
            with pytest.raises(EngineError, match="scheduler"):
                await encode

    run(test)


def test_a_clip_is_encoded_by_the_next_scheduler(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            encode = asyncio.create_task(one.engine.encode("e", np.ones(8, np.float32)))
            await one.scheduler.next(EncodeAudio)
            await one.restart_scheduler()
            _, (samples,) = await one.scheduler.next(EncodeAudio)
            assert np.array_equal(samples, np.ones(8, np.float32))
            one.scheduler.send(Encoded("e"), codes_of(0, 2).T)
            assert np.array_equal(await encode, codes_of(0, 2).T)

    run(test)


def test_frames_after_a_hole_are_asked_for_again_once_and_dropped_until_then(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            stream = await one.submit()
            one.sound(0, 2)
            await read(stream, 2)
            one.sound(5, 1)
            assert (await one.scheduler.next(Resume))[0].received == 2
            one.sound(6, 1)  # sent before the scheduler knew
            one.sound(2, 5)
            await read(stream, 5)
            assert one.metric("hole") == 1

    run(test)


def test_a_hole_that_is_never_filled_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "HOLE_SECONDS", 0.0)

    async def test() -> None:
        async with group(tmp_path) as one:
            stream = await one.submit()
            for _ in range(recovery.MAX_RESUMES):
                one.sound(5, 1)
                await one.scheduler.next(Resume)
            one.sound(5, 1)
            item = await asyncio.wait_for(stream.next(), 5)
            assert isinstance(item, End)
            assert item.failure is not None
            assert item.failure.code == "frames_lost"
            stream.close()
            await one.scheduler.next(Cancel)

    run(test)


def test_a_vocoder_worker_that_is_lost_before_its_last_sound_arrives(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            stream, other = await one.submit(), await one.submit("other")
            for request in ("r", "other"):
                one.sound(0, 2, request=request)
            await read(stream, 2)
            await read(other, 2)
            one.scheduler.send(Ended("r", "stop", 4))
            await eventually(lambda: stream.ended)
            one.tell_state(vocoders=False)
            assert (await one.scheduler.next(Resume))[0].what.request == "r"
            await asyncio.sleep(0.05)
            assert one.metric("vocoder") == 1, "the other one is the scheduler's business"

    run(test)


def test_a_connection_that_comes_back_is_reported_with_what_is_here(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            stream = await one.submit()
            one.sound(0, 2)
            await read(stream, 2)
            one.scheduler.send(Detached(one.vocoder.incarnation))
            await one.attach()
            assert (await one.scheduler.next(Attached))[0].vocoder == one.vocoder.incarnation
            assert (await one.scheduler.next(Resume))[0].received == 2

    run(test)


def test_silence_is_asked_about_when_the_client_has_read_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "SILENCE_SECONDS", 0.1)

    async def test() -> None:
        async with group(tmp_path) as one:
            stream, resting = await one.submit(), await one.submit("resting", open=True, room=5)
            for request in ("r", "resting"):
                one.sound(0, 2, request=request)
            await read(resting, 2)
            one.scheduler.send(Rested("resting", 2, 0))
            await eventually(lambda: stream.received == 2 and resting.at_rest)
            await asyncio.sleep(0.2)
            one.engine._recovery._watched = 0.0
            one.scheduler.send(Ping())
            await asyncio.sleep(0.1)
            assert one.metric("silence") == 0, "one client has not read, and nothing is due to the other"
            await read(stream, 2)
            one.engine._recovery._watched = 0.0
            one.scheduler.send(Ping())
            assert (await one.scheduler.next(Resume))[0].what.request == "r"

    run(test)


def test_a_stream_that_was_resumed_and_is_complete_is_cancelled_for_it_may_be_known_once_more(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            stream = await one.submit()
            one.sound(0, 1)
            one.sound(3, 1)
            await one.scheduler.next(Resume)
            one.sound(1, 1)
            one.scheduler.send(Ended("r", "stop", 2))
            await read(stream, 2)
            assert isinstance(await stream.next(), End)
            stream.close()
            assert (await one.scheduler.next(Cancel))[0].request == "r"

    run(test)


def test_a_scheduler_that_is_silent_makes_the_group_unready_and_then_ends_streams(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path, "scheduler.worker_timeout=0.2", "scheduler.recovery_seconds=0.3") as one:
            stream = await one.submit()
            one.scheduler.send(Ping())
            await eventually(lambda: one.engine.unready() == {"scheduler": "silent"})
            assert not stream.ended
            item = await asyncio.wait_for(stream.next(), 5)
            assert isinstance(item, End)
            assert item.failure == SCHEDULER_LOST

    run(test)


def test_frames_that_can_t_be_right_end_their_stream_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with group(tmp_path) as one:
            bad, good = await one.submit("bad"), await one.submit("good")
            spans = [FrameSpan("bad", 0, 0), FrameSpan("good", 0, 1)]
            sounds = np.zeros(0, np.float32), np.zeros(HOP, np.float32)
            one.vocoder.send(Audio([FrameSpan("bad", -1, 0), spans[1]], "scheduler-1"), codes_of(0, 1), *sounds)
            one.vocoder.send(Audio([FrameSpan("bad", -1, 1), spans[1]], "scheduler-1"), codes_of(0, 1), sounds[1])
            one.sound(1, 1, request="good")
            await read(good, 2)
            bad.close()
            assert not good.failed

    run(test)
