"""Ending a group under load: what is under way is finished, what is new is sent away, and nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import msgspec
import psutil
import pytest

from tests.integration.client import Reply, gather, post, speak
from tests.integration.group import PROGRAMS, Group, costs, eventually, free_port, running

STREAMS, FRAMES = 12, 100
HOP = 800  # samples of a frame of the bundled model, at its 16 kHz


@contextmanager
def leaving_nothing(group: Group) -> Iterator[None]:
    """Whatever is running now has ended a moment after."""
    tree = group.tree()
    yield
    _, alive = psutil.wait_procs(tree, timeout=2)
    assert not alive


def ready(group: Group) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{group.base}/readyz", timeout=5) as reply:
            return reply.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_drain_under_load_loses_nothing_and_sends_away_who_comes_after_its_grace() -> None:
    grace, frames = 1.5, 300  # the streams outlast the signal's way through the supervisor (up to 1 s) and the grace
    with running(*costs(step_ms=20.0, gateway__drain_grace=grace)) as group, leaving_nothing(group):
        late: list[Reply] = []

        async def drain() -> None:
            await asyncio.sleep(0.8)
            group.process.terminate()
            await asyncio.to_thread(eventually, lambda: ready(group)[0] == 503)
            late.append(await speak(group.base, "Within the grace.", max_new_tokens=5))
            await asyncio.sleep(grace)
            late.append(await speak(group.base, "Too late.", max_new_tokens=5))

        calls = [
            speak(group.base, f"Stream {n}.", seed=n, max_new_tokens=frames, streaming=n % 4 > 0)
            for n in range(STREAMS)
        ]
        *replies, _ = gather(*calls, drain())
        assert [(reply.status, reply.broken, len(reply.samples)) for reply in replies] == [
            (200, False, frames * HOP)
        ] * STREAMS
        within, after = late
        assert (within.status, len(within.samples)) == (200, 5 * HOP)
        assert (after.status, after.error["code"]) == (503, "draining")
        assert int(after.headers["Retry-After"]) >= 1
        assert group.process.wait(15) == 0


@pytest.mark.slow
def test_the_parts_of_a_long_reply_are_finished_too() -> None:
    """A text beyond what one engine request holds is submitted in parts, some of them after the signal."""
    with running(*costs(step_ms=3.0, ar_worker__cost__frames=60)) as group:
        text = "This is one of very many sentences. " * 30

        async def drain() -> None:
            await asyncio.sleep(0.4)
            group.process.terminate()

        before = gather(speak(group.base, text, seed=1))[0]
        during, _ = gather(speak(group.base, text, seed=1), drain())
        assert (during.status, during.broken) == (200, False)
        assert len(during.samples) == len(before.samples) > 3 * 60 * HOP
        assert group.process.wait(15) == 0


@pytest.mark.slow
def test_sockets_are_told_idle_ones_at_once_and_speaking_ones_at_the_bound() -> None:
    bound = 4.0

    async def events(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, object]]:
        return [msgspec.msgpack.decode(message.data) async for message in socket]

    async def test(group: Group) -> None:
        async with aiohttp.ClientSession() as session:
            idle = await session.ws_connect(f"{group.base}/v1/tts/live")
            speaking = await session.ws_connect(f"{group.base}/v1/tts/live")
            wanted = {"text": "A speech without an end. ", "format": "pcm", "max_new_tokens": 2000}
            await speaking.send_bytes(msgspec.msgpack.encode({"event": "start", "request": wanted}))
            await speaking.receive(5)
            began = time.monotonic()
            group.process.terminate()
            assert await events(idle) == []
            assert time.monotonic() - began < bound - 1.0  # the supervisor notices a signal within a second
            heard = await events(speaking)
        assert time.monotonic() - began >= bound
        assert [event["event"] for event in heard[-2:]] == ["error", "finish"]
        assert (heard[-2]["code"], heard[-1]["reason"]) == ("draining", "error")
        assert (idle.close_code, speaking.close_code) == (1001, 1001)

    with running(*costs(step_ms=20.0, gateway__drain_timeout=bound)) as group, leaving_nothing(group):
        asyncio.run(test(group))
        assert group.process.wait(15) == 0


def test_a_second_signal_ends_the_group_at_once() -> None:
    with running(*costs(step_ms=20.0)) as group, leaving_nothing(group):

        async def twice() -> float:
            await asyncio.sleep(0.5)
            group.process.send_signal(signal.SIGINT)
            await asyncio.sleep(0.5)
            assert group.process.poll() is None, "it waits for the stream"
            began = time.monotonic()
            group.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(group.process.wait, 5)
            return time.monotonic() - began

        reply, took = gather(post(group.base, "/v1/tts", {"text": "Long.", "max_new_tokens": 2000}), twice())
        assert reply.broken, "what was cut off does not look whole"
        assert took < 2.0
        assert group.process.returncode != 0


@pytest.mark.slow
def test_a_second_signal_to_one_process_ends_it_at_once() -> None:
    """As a service manager that runs each of them by itself would send it."""
    with running(*costs(step_ms=20.0), "--port", str(free_port())) as group:

        async def twice(program: str) -> float:
            await asyncio.sleep(0.5)
            pid = group.pid(program)
            os.kill(pid, signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert psutil.pid_exists(pid), "it waits for the stream"
            began = time.monotonic()
            os.kill(pid, signal.SIGTERM)
            await asyncio.to_thread(eventually, lambda: not psutil.pid_exists(pid), 8)
            return time.monotonic() - began

        for program in PROGRAMS:
            call = post(group.base, "/v1/tts", {"text": "Long.", "max_new_tokens": 500})  # for 10 s
            _, took = gather(call, twice(program))
            assert took < 4.0
            eventually(group.ready, 60)  # the supervisor has started it again


@pytest.mark.slow
def test_a_group_whose_starter_is_killed_drains_and_ends() -> None:
    with running(*costs(step_ms=20.0)) as group, leaving_nothing(group):

        async def kill() -> None:
            await asyncio.sleep(0.5)
            group.process.kill()

        reply, _ = gather(speak(group.base, "To the end.", max_new_tokens=FRAMES), kill())
        assert (reply.broken, len(reply.samples)) == (False, FRAMES * HOP)
        tree = [process for process in psutil.process_iter() if str(group.run_dir) in " ".join(cmdline(process))]
        _, alive = psutil.wait_procs(tree, timeout=10)
        assert not alive


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
