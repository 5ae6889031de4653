"""Budgets for bodies and unstreamed replies: spooled beyond a size, refused beyond the budget, returned in any case."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import pytest
from gateway_fakes import HOP, Client, Player, eventually, post, run, serving, speak, tone

from gateway.audio import to_int16
from gateway.http import buffers

CHUNK = 512  # frames


def held(client: Client) -> tuple[float | None, float | None]:
    """Bytes in memory and on disk, by the metrics."""
    value = client.registry.get_sample_value
    return tuple(value("shoal_buffered_bytes", {"place": place}) for place in ("memory", "disk"))  # type: ignore[return-value]


@pytest.mark.parametrize("form", ["wav", "pcm", "flac"])
def test_a_spooled_reply_is_the_same_as_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(3, 5, 7, 11, 13)
            bodies = []
            for size in (10**9, 2 * HOP, 0):
                monkeypatch.setattr(buffers, "SPOOL_BYTES", size)
                monkeypatch.setattr(buffers, "BLOCK_BYTES", 1000)
                reply, body = await post(client, text="hello", format=form, streaming=False)
                assert (reply.status, int(reply.headers["Content-Length"])) == (200, len(body))
                bodies.append(body)
            assert bodies[0] == bodies[1] == bodies[2]
            if form == "pcm":
                assert bodies[0] == to_int16(tone(39)).tobytes()
            await eventually(lambda: held(client) == (0, 0))
            assert list((tmp_path / "data" / "spool").iterdir()) == []

    run(test)


@pytest.mark.parametrize(("setting", "spool"), [("max_buffered_bytes", 10**9), ("max_spool_bytes", 0)])
def test_replies_beyond_a_budget_are_refused_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, spool: int
) -> None:
    monkeypatch.setattr(buffers, "SPOOL_BYTES", spool)
    gate = asyncio.Event()

    async def plan(player: Player) -> None:
        player.give(CHUNK)
        player.give(CHUNK)
        await gate.wait()
        player.end()

    async def test() -> None:
        async with serving(tmp_path, **{setting: CHUNK * HOP * 2 + 1000}) as client:
            client.engine.plan = plan
            first = asyncio.create_task(post(client, text="hello", format="pcm", streaming=False))
            await eventually(lambda: sum(value or 0 for value in held(client)) >= CHUNK * HOP * 2)
            reply, body = await post(client, text="hello", format="pcm", streaming=False)
            assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
            assert msgspec.json.decode(body)["error"]["code"] == "buffers_full"
            gate.set()
            assert (await first)[0].status == 200
            assert (await post(client, text="hello", format="pcm", streaming=False))[0].status == 200
            await eventually(lambda: held(client) == (0, 0))
            assert client.engine.in_flight == 0

    run(test)


@pytest.mark.parametrize("kind", ["application/json", "application/msgpack", "multipart/form-data"])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_are_counted_as_they_come_and_refused_beyond_the_budget(
    tmp_path: Path, kind: str, chunked: bool
) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_buffered_bytes=1_000_000) as client:
            headers = {"Content-Type": kind + ("; boundary=x" if "multipart" in kind else "")}
            begin = (
                b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\n' if "multipart" in kind else b'{"text": "'
            )

            async def slow(size: int, gate: asyncio.Event):  # type: ignore[no-untyped-def]
                yield begin + b"a" * size
                await gate.wait()
                yield b"a"

            gate = asyncio.Event()
            first = asyncio.create_task(client.http.post("/v1/tts", data=slow(600_000, gate), headers=headers))
            await eventually(lambda: (held(client)[0] or 0) >= 500_000)
            content = begin + b"a" * 600_000
            data = aiohttp.BytesPayload(content) if not chunked else _pieces(content)
            async with client.post("/v1/tts", data=data, headers=headers) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (503, "buffers_full")
            assert (held(client)[0] or 0) < 700_000
            gate.set()
            async with await first as reply:
                assert reply.status == 400  # none of these is whole
            await eventually(lambda: held(client) == (0, 0))

    run(test)


async def _pieces(content: bytes):  # type: ignore[no-untyped-def]
    for begin in range(0, len(content), 50_000):
        yield content[begin : begin + 50_000]


def test_a_client_that_leaves_returns_what_was_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "SPOOL_BYTES", 1000)

    async def plan(player: Player) -> None:
        player.give(CHUNK)
        player.give(CHUNK)
        await asyncio.sleep(3600)

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = plan
            first = asyncio.create_task(post(client, text="hello", format="pcm", streaming=False))
            await eventually(lambda: (held(client)[1] or 0) > 0)
            first.cancel()
            await eventually(lambda: held(client) == (0, 0))

    run(test)


def test_a_spool_that_can_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "SPOOL_BYTES", 0)

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.gateway.spool_dir = tmp_path / "file" / "spool"
            (tmp_path / "file").write_text("")
            client.engine.plan = speak(2, 2)
            reply, body = await post(client, text="hello", format="pcm", streaming=False)
            assert (reply.status, msgspec.json.decode(body)["error"]["code"]) == (503, "storage_unavailable")
            await eventually(lambda: held(client) == (0, 0))

    run(test)
