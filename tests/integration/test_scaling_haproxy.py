"""Several groups behind HAProxy, with the real processes: what the loss of a group costs, and what it does not."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest

from deploy.targets.haproxy.config import Options, render
from tests.integration.balancer import FRAMES, VOICES, Load, groups, haproxy, homes, kill, valid
from tests.integration.client import post, speak
from tests.integration.group import Group, eventually, free_port
from tests.integration.names import Names

NAMES = [f"shoal-{n}.shoal-groups.test" for n in range(3)]
SETTLE = 1.5  # seconds of load before something happens, and after


def name(group: Group) -> str:
    return group.address.replace(":", "_")


async def whole(base: str) -> int:
    """Bytes of a whole reply."""
    reply = await post(base, "/v1/tts", {"text": "Hello.", "format": "pcm", "streaming": False})
    assert (reply.status, reply.headers["X-Frames"]) == (200, str(FRAMES))
    return len(reply.body)


def moved(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {voice for voice in VOICES if before[voice] != after[voice]}


def of(homes: dict[str, str], group: Group) -> set[str]:
    return {voice for voice, home in homes.items() if home == name(group)}


@pytest.mark.slow
def test_a_drained_and_a_killed_group_cost_no_new_request_and_move_their_own_voices_only() -> None:
    with groups([], [], []) as (kept, drained, killed):
        addresses = [group.address for group in (kept, drained, killed)]
        with haproxy(addresses) as base:
            asyncio.run(lose_two(base, kept, drained, killed))
            kept.stop()
            status, headers, body = asyncio.run(get(base, "/v1/models"))
            assert (status, headers["Retry-After"], json.loads(body)["error"]["type"]) == (503, "2", "server_error")


async def lose_two(base: str, kept: Group, drained: Group, killed: Group) -> None:
    size, at_first = await whole(base), await homes(base)
    shares = [len(of(at_first, group)) for group in (kept, drained, killed)]
    assert min(shares) > len(VOICES) / 6, f"every group has its share: {shares}"
    served = [
        reply.headers["X-Served-By"] for reply in await asyncio.gather(*(speak(base, "Hello.") for _ in range(9)))
    ]
    assert [served.count(one) for one in set(served)] == [3, 3, 3], "without a voice: who has the fewest streams"

    async with Load(base) as load:
        await asyncio.sleep(SETTLE)
        drained.process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        await asyncio.to_thread(drained.process.wait, 30)
        await asyncio.sleep(SETTLE)
    assert load.failed(size) == []
    running_then = [one for one in load.sent if one.reply.started < asked < one.reply.arrivals[-1][0]]
    assert any(one.group == name(drained) for one in running_then), "streams were under way there"
    after_drain = await homes(base)
    assert moved(at_first, after_drain) == of(at_first, drained)

    async with Load(base) as load:
        await asyncio.sleep(SETTLE)
        died = time.monotonic()
        kill(killed)
        await asyncio.sleep(2 * SETTLE)
    lost = load.failed(size)
    assert all(one.group == name(killed) and one.reply.started < died for one in lost), "no new request failed"
    assert all(one.reply.arrivals for one in lost), "nor one that had not begun to sound"
    assert moved(after_drain, await homes(base)) == of(after_drain, killed)


@pytest.mark.slow
def test_what_passes_through_arrives_as_if_the_group_were_asked(fast: Group) -> None:
    async def test(base: str) -> None:
        direct, through = await asyncio.gather(
            *(speak(one, "Hello.", format="pcm", seed=5, max_new_tokens=60) for one in (fast.base, base))
        )
        assert through.body == direct.body
        reply = await speak(base, "Never heard to its end. " * 20, stop_after=1000)
        assert reply.status == 200
        await asyncio.to_thread(eventually, fast.idle, 5)

        assert await live(base) == len(direct.body)
        for path in ("/metrics", "/debug/requests/x"):
            assert (await get(base, path))[0] == 404
        assert (await get(base, "/readyz"))[0] == 200

    with haproxy([fast.address]) as base:
        asyncio.run(test(base))


async def get(base: str, path: str) -> tuple[int, dict[str, str], bytes]:
    async with aiohttp.request("GET", base + path) as reply:
        return reply.status, dict(reply.headers), await reply.read()


async def live(base: str) -> int:
    """Bytes of sound that a WebSocket brings, from ``start`` to ``finish``."""
    async with aiohttp.ClientSession() as session, session.ws_connect(base + "/v1/tts/live") as socket:
        request = {"text": "Hello.", "format": "pcm", "max_new_tokens": 60}
        for event in ({"event": "start", "request": request}, {"event": "stop"}):
            await socket.send_bytes(msgspec.msgpack.encode(event))
        size = 0
        async for message in socket:
            event = msgspec.msgpack.decode(message.data)
            if event["event"] == "finish":
                assert event["reason"] == "stop"
                return size
            size += len(event["audio"])
    raise AssertionError("no finish")


@pytest.mark.slow
def test_groups_come_and_go_by_name_while_they_are_in_use() -> None:
    """As on Kubernetes: of the names there may be, those of ready groups exist, and one that goes is drained."""
    port = free_port()

    async def test(base: str, names: Names, going: Group, coming: Group) -> None:
        size, at_first = await whole(base), await homes(base)
        async with Load(base) as load:
            await asyncio.sleep(SETTLE)
            assert coming.metric("shoal_requests_total") == 0
            names.names[NAMES[2]] = host(coming)
            await asyncio.to_thread(eventually, lambda: coming.metric("shoal_requests_total") > 0, 15)
        assert load.failed(size) == []
        with_three = await homes(base)
        arrived = moved(at_first, with_three)
        assert arrived
        assert {with_three[voice] for voice in arrived} == {f"{NAMES[2]}_{port}"}

        async with Load(base) as load:
            await asyncio.sleep(SETTLE)
            del names.names[NAMES[0]]
            going.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(going.process.wait, 30)
            await asyncio.sleep(SETTLE)
        assert load.failed(size) == []
        left = {voice for voice, home in with_three.items() if home == f"{NAMES[0]}_{port}"}
        assert moved(with_three, await homes(base)) == left

    options = [["--host", f"127.0.0.{n}", "--port", str(port)] for n in (11, 12, 13)]
    addresses = [f"{one}:{port}" for one in NAMES]
    with (
        groups(*options) as (going, staying, coming),
        Names({NAMES[0]: host(going), NAMES[1]: host(staying)}) as names,
        haproxy(addresses, Options(dns=names.address)) as base,
    ):
        asyncio.run(test(base, names, going, coming))


def host(group: Group) -> str:
    return group.address.split(":")[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("addresses", "options"),
    [
        ([f"10.0.0.{n}:8080" for n in range(1, 65)], Options(stats="127.0.0.1:8405")),
        (["shoal-0.shoal:8080", "shoal-1.shoal:8080"], Options(dns="10.96.0.10:53")),
        (["[fd00::1]:8080", "[fd00::2]:8080"], Options(listen="[::]:8080")),
    ],
)
def test_haproxy_accepts_what_is_generated(tmp_path: Path, addresses: list[str], options: Options) -> None:
    file = tmp_path / "haproxy.cfg"
    file.write_text(render(addresses, options))
    assert valid(file) == ""
