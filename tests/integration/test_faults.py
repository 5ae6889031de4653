"""What may go wrong while the group serves: clients that leave, processes that die, more than there is room for."""

from __future__ import annotations

import asyncio
import io
import json
import random
import resource
import socket
import sys
import wave
from collections.abc import Awaitable, Iterator
from pathlib import Path

import aiohttp
import numpy as np
import psutil
import pytest

from tests.chaos.faults import shut_down
from tests.integration.client import Reply, codes, gather, post, speak
from tests.integration.group import Group, costs, eventually, free_port, running


@pytest.fixture(scope="module")
def slow() -> Iterator[Group]:
    """Steps of 20 ms, few slots, a short queue."""
    with running(*costs(step_ms=20.0, ar_worker__slots=4, scheduler__max_waiting=8)) as group:
        yield group


def test_clients_that_leave_at_any_moment_leave_nothing_behind(fast: Group) -> None:
    chance = random.Random(5)

    async def visit(number: int) -> object:
        await asyncio.sleep(chance.random() * 1.5)
        text = f"Visitor {number}. " * chance.choice([1, 1, 30])
        call = speak(fast.base, text, max_new_tokens=chance.randint(1, 400), streaming=chance.random() < 0.8)
        if chance.random() < 0.3:
            return await call
        try:
            return await asyncio.wait_for(call, chance.random() * 0.4)
        except TimeoutError:
            return None

    witness_fields = {"seed": 77, "max_new_tokens": 600}
    (before,) = gather(codes(fast.base, "The witness.", **witness_fields))
    during, *_ = gather(codes(fast.base, "The witness.", **witness_fields), *(visit(n) for n in range(60)))
    assert (during.codes == before.codes).all()
    eventually(fast.idle, 5)
    assert fast.ready()


def test_a_client_that_hangs_up_frees_its_place_at_once(slow: Group) -> None:
    gather(speak(slow.base, "Long.", max_new_tokens=500, stop_after=1000))
    assert eventually(slow.idle, 2) < 1.0
    assert slow.metric("shoal_requests_finished_total", reason="cancelled") > 0


def test_over_the_bound_is_refused_at_once_and_the_rest_is_served(slow: Group) -> None:
    replies = gather(*(speak(slow.base, f"Guest {n}.", max_new_tokens=30) for n in range(20)))
    refused = [reply for reply in replies if reply.status != 200]
    assert len(refused) == 8
    for reply in refused:
        assert reply.status == 429
        assert int(reply.headers["Retry-After"]) >= 1
        assert reply.error["code"] == "queue_full"
    eventually(slow.idle)


def test_a_client_that_stops_reading_disturbs_nobody() -> None:
    with running(*costs(step_ms=2.0, gateway__slow_client_timeout=2.0, scheduler__unread_seconds=2.0)) as group:
        host, port = group.address.split(":")

        async def stall() -> None:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect((host, int(port)))
                client.sendall(request("I never read.", max_new_tokens=600))
                ended = lambda: group.metric("shoal_requests_finished_total", reason="slow_client") > 0  # noqa: E731
                await asyncio.to_thread(eventually, ended, 15)

        _, other = gather(stall(), speak(group.base, "I read.", max_new_tokens=300))
        assert other.status == 200
        assert other.headers.get("X-Seed")
        assert other.took < 5
        eventually(group.idle)


@pytest.mark.parametrize(
    "killed",
    [
        ["ar_worker"],
        ["vocoder_worker"],
        ["ar_worker", "vocoder_worker"],
        ["scheduler"],
        ["scheduler", "vocoder_worker", "ar_worker"],
    ],
)
def test_streams_outlive_every_process_but_the_gateway(killed: list[str]) -> None:
    """A killed process is noticed, comes back, and every stream goes on from the very next sample."""
    calls = {"Streamed.": {"seed": 1}, "As a file.": {"seed": 2, "streaming": False}, "Slowly.": {"seed": 3}}

    def all_of(group: Group) -> list[object]:
        return [speak(group.base, text, max_new_tokens=200, **fields) for text, fields in calls.items()]

    with running(*costs(step_ms=20.0)) as group:

        async def kill_midway() -> float:
            await asyncio.sleep(1.5)
            for program in killed:
                group.kill(program)
            return await asyncio.to_thread(eventually, lambda: not group.ready())

        undisturbed = gather(*all_of(group))
        *replies, noticed = gather(*all_of(group), kill_midway())
        assert noticed < 1.0
        for before, reply in zip(undisturbed, replies, strict=True):
            assert reply.status == 200
            assert not reply.broken
            assert np.array_equal(reply.samples, before.samples)
        again = group.metric("shoal_recoveries_total") - len(calls)  # sound that was lost on its way from a vocoder
        assert (
            0 <= again <= sum(group.metric("shoal_stream_resumes_total", cause=cause) for cause in ("hole", "vocoder"))
        )
        eventually(group.idle)


def test_a_gateway_that_is_lost_ends_its_connections_and_frees_their_places_at_once() -> None:
    with running(*costs(step_ms=20.0), "--port", str(free_port())) as group:

        async def kill_midway() -> None:
            await asyncio.sleep(1.0)
            group.kill("gateway")

        call = post(group.base, "/v1/tts", {"text": "In flight.", "format": "pcm", "max_new_tokens": 500})
        reply, _ = gather(call, kill_midway())
        assert reply.broken
        eventually(group.ready, 60)
        (again,) = gather(speak(group.base, "New.", max_new_tokens=10, streaming=False))
        assert again.status == 200
        eventually(group.idle)


def test_what_had_not_begun_is_asked_again_of_the_next_scheduler() -> None:
    with running(*costs(step_ms=20.0, ar_worker__slots=1), "--port", str(free_port())) as group:

        async def kill_midway() -> None:
            await asyncio.sleep(1.0)
            group.kill("scheduler")

        begun, *waiting, _ = gather(
            speak(group.base, "In flight.", max_new_tokens=500),
            *(later(speak(group.base, f"Waiting {n}.", max_new_tokens=20, seed=n, streaming=n == 1)) for n in (1, 2)),
            kill_midway(),
        )
        assert not begun.broken
        assert len(begun.samples) == 500 * 800
        for reply in waiting:
            assert reply.status == 200
            assert not reply.broken
            assert len(reply.samples) == 20 * 800
        eventually(group.idle)


def test_a_full_disk_is_named_when_a_voice_is_added_and_speech_goes_on(fast: Group) -> None:
    gateway = psutil.Process(fast.pid("gateway"))
    before = gateway.rlimit(resource.RLIMIT_FSIZE)
    gateway.rlimit(resource.RLIMIT_FSIZE, (1024, before[1]))  # bytes of a file
    try:
        (reply,) = gather(add_voice(fast.base, "full"))
        assert (reply.status, reply.error["code"]) == (507, "insufficient_storage")
        assert int(reply.headers["Retry-After"]) > 0
        (spoken,) = gather(speak(fast.base, "Speech goes on.", max_new_tokens=5))
        assert spoken.status == 200
    finally:
        gateway.rlimit(resource.RLIMIT_FSIZE, before)
    (reply,) = gather(add_voice(fast.base, "full"))
    assert reply.status == 200


async def add_voice(base: str, voice: str) -> Reply:
    """Add a voice of two seconds of a tone."""
    samples = (8000 * np.sin(np.arange(32_000) / 20)).astype("<i2")
    clip = io.BytesIO()
    with wave.open(clip, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    form = aiohttp.FormData({"id": voice, "text": "A tone."})
    form.add_field("audio", clip.getvalue(), filename="tone.wav", content_type="audio/wav")
    async with aiohttp.ClientSession() as session, session.post(f"{base}/v1/references/add", data=form) as response:
        return Reply(response.status, response.headers, await response.read())


@pytest.mark.parametrize("program", ["ar_worker", "vocoder_worker"])
def test_a_worker_whose_compute_thread_hangs_is_lost_and_streams_go_on(program: str, tmp_path: Path) -> None:
    sign = tmp_path / "hang"
    hangs = {f"{program}__cost__hang_file": str(sign)}
    with running(*costs(step_ms=20.0, scheduler__hang_timeout=1.0, **hangs)) as group:
        (undisturbed,) = gather(speak(group.base, "In flight.", seed=1, max_new_tokens=150))
        pid = group.pid(program)

        async def hang() -> None:
            await asyncio.sleep(1.0)
            sign.touch()
            await asyncio.to_thread(eventually, lambda: not group.ready(), 5)
            await asyncio.to_thread(eventually, lambda: group.pid(program) != pid, 15)
            sign.unlink()

        reply, _ = gather(speak(group.base, "In flight.", seed=1, max_new_tokens=150), hang())
        assert not reply.broken
        assert np.array_equal(reply.samples, undisturbed.samples)
        eventually(group.idle)


@pytest.mark.skipif(sys.platform != "linux", reason="connections are cut by Linux' system calls")
@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_connection_that_is_cut_costs_a_pause(host: str) -> None:
    """Between gateway and vocoder worker, while both live: over a socket of the run directory, and over tcp."""
    calls = {"Streamed.": {"seed": 1}, "As a file.": {"seed": 2, "streaming": False}, "Short.": {"seed": 3}}

    def all_of(group: Group) -> list[object]:
        return [speak(group.base, text, max_new_tokens=200, **fields) for text, fields in calls.items()]

    with running(*costs(step_ms=10.0, transport__audio_host=host)) as group:

        async def cut_again_and_again() -> int:
            cuts = 0
            for _ in range(6):
                await asyncio.sleep(0.3)
                cuts += cut_audio(group, tcp=bool(host))
            return cuts

        undisturbed = gather(*all_of(group))
        *replies, cuts = gather(*all_of(group), cut_again_and_again())
        assert cuts >= 3
        for before, reply in zip(undisturbed, replies, strict=True):
            assert not reply.broken
            assert np.array_equal(reply.samples, before.samples)
        eventually(group.idle)


def cut_audio(group: Group, tcp: bool) -> int:
    """Cut the connections at the socket where the vocoder worker offers its sound; how many there were."""
    pid = group.pid("vocoder_worker")
    metrics = int((group.run_dir / "vocoder_worker.metrics").read_text())
    if tcp:
        found = psutil.Process(pid).net_connections("tcp")
        here = [one.fd for one in found if one.status == "ESTABLISHED" and one.laddr.port != metrics]
    else:
        here = [one.fd for one in psutil.Process(pid).net_connections("unix") if str(one.laddr).endswith(".audio.sock")]
    return sum(shut_down(pid, fd) for fd in here)


async def later(call: Awaitable[Reply]) -> Reply:
    await asyncio.sleep(0.3)
    return await call


def request(text: str, **fields: object) -> bytes:
    """A request as bytes, for a client that does as it likes with its socket."""
    body = json.dumps({"text": text, "format": "pcm"} | fields).encode()
    lines = ["POST /v1/tts HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body
