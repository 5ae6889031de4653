"""The order in which readers of sound are woken."""

from __future__ import annotations

import asyncio

import numpy as np

from common.messages import Ended, FrameSpan
from gateway.engine.streams import Stream
from gateway.engine.wakeups import ReaderWakeups


def make_stream(request: str) -> Stream:
    return Stream(request, "audio", lambda *_: None, lambda *_: None, lambda *_: None)


def give(wakes: ReaderWakeups, stream: Stream, first: int) -> None:
    stream.add(FrameSpan(stream.request, first, 1), np.zeros(8, np.float32))
    wakes.add(stream, first == 0)


def woken(streams: list[Stream]) -> list[str]:
    return [stream.request for stream in streams if stream.changed.is_set()]


def test_first_and_last_sound_wake_at_once_and_the_rest_in_turns() -> None:
    async def scenario() -> None:
        wakes = ReaderWakeups()
        streams = [make_stream(str(number)) for number in range(4)]
        for stream in streams:
            give(wakes, stream, 0)
            assert stream.changed.is_set()
            stream.changed.clear()
        ending = streams[-1]
        ending.end(Ended(ending.request, "stop", 2))
        ending.changed.clear()
        for stream in streams:
            give(wakes, stream, 1)
        assert woken(streams) == [ending.request]
        for turn in range(1, 4):
            assert len(wakes) == 4 - turn
            await asyncio.sleep(0)
            assert woken(streams) == [*map(str, range(turn)), ending.request]
        assert not wakes

    asyncio.run(scenario())


def test_a_stream_that_nobody_reads_any_more_is_not_woken() -> None:
    async def scenario() -> None:
        wakes, stream = ReaderWakeups(), make_stream("a")
        stream.add(FrameSpan("a", 0, 1), np.zeros(8, np.float32))
        give(wakes, stream, 1)
        wakes.forget("a")
        await asyncio.sleep(0)
        assert not stream.changed.is_set()
        assert not wakes

    asyncio.run(scenario())
