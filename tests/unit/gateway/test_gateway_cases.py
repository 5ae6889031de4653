"""Cases that concern several doors at once."""

from __future__ import annotations

import asyncio
import io
import resource
from pathlib import Path
from typing import Any

import aiohttp
import av
import msgspec
import numpy as np
import pytest
from gateway_fakes import HOP, RATE, Client, Player, eventually, post, run, serving, speak, tone
from gateway_sound import decode, heard

from common.messages import Array
from gateway.audio import Delivery, Pipeline, to_int16
from gateway.http.connections import allow_files

LONG_TEXT = " ".join(f"This is sentence number {number} of a long text, which is cut." for number in range(50))
MINUTES = 1


async def say_live(client: Client, text: str, **fields: Any) -> bytes:
    """One start, one text, one stop: the bytes of the sound."""
    sound = b""
    async with client.http.ws_connect("/v1/tts/live") as socket:
        for values in ({"event": "start", "request": fields}, {"event": "text", "text": text}, {"event": "stop"}):
            await socket.send_bytes(msgspec.msgpack.encode(values))
        while (told := msgspec.msgpack.decode((await socket.receive(10)).data))["event"] == "audio":
            sound += told["audio"]
        assert told == {"event": "finish", "reason": "stop"}
    return sound


def test_a_long_text_is_cut_alike_at_every_door(tmp_path: Path) -> None:
    """Seeds apart, the engine gets the same request whichever endpoint the text came through."""

    async def test() -> None:
        async with serving(tmp_path) as client:

            async def asked(path: str, **fields: Any) -> list[Array]:
                client.engine.submitted.clear()
                reply, _ = await post(client, path, **fields)
                assert reply.status == 200
                return [prompt for _, prompt in client.engine.submitted]

            expected = await asked("/v1/tts", text=LONG_TEXT, format="pcm")
            assert sum(prompt.shape[1] for prompt in expected) > len(LONG_TEXT) / 8
            for got in (
                await asked("/v1/tts", text=LONG_TEXT, format="wav", streaming=False),
                await asked("/v1/codes", text=LONG_TEXT),
                await asked("/v1/audio/speech", input=LONG_TEXT, response_format="pcm"),
                await asked("/compat/v1/audio/speech", input=LONG_TEXT, stream_format="sse"),
            ):
                assert [prompt.tobytes() for prompt in got] == [prompt.tobytes() for prompt in expected]

    run(test)


@pytest.mark.parametrize("sound_format", ["mp3", "wav", "pcm", "opus", "aac", "flac"])
def test_every_format_works_at_every_door(tmp_path: Path, sound_format: str) -> None:
    frames = 9

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(2, 7)
            rate = {"sample_rate": RATE} if sound_format != "opus" else {}
            _, fish = await post(client, text="Hello.", format=sound_format, **rate)
            _, openai = await post(client, "/v1/audio/speech", input="Hello.", response_format=sound_format, **rate)
            live = await say_live(client, "Hello.", format=sound_format, **rate)
            told = 48_000 if sound_format == "opus" else RATE
            for sound in (fish, openai, live):
                if sound_format == "pcm":
                    assert len(sound) == 2 * frames * HOP
                else:
                    assert decode(sound).rate == told
                    heard(sound_format, sound, round(frames * HOP * told / RATE))

    run(test)


def test_a_slow_reader_gets_all_that_a_fast_engine_made_in_order(tmp_path: Path) -> None:
    chunks = 50

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(*[3] * chunks)
            body = b""
            fields = {"text": "Hello.", "format": "pcm", "sample_rate": RATE}
            async with client.post("/v1/tts", json=fields) as reply:
                while data := await reply.content.read(16 * HOP):
                    body += data
                    await asyncio.sleep(0.01)
            assert body == to_int16(tone(3 * chunks)).tobytes()

    run(test)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_hole_in_what_the_engine_gives_is_a_failure_and_never_a_whole_reply(tmp_path: Path, streaming: bool) -> None:
    async def plan(player: Player) -> None:
        player.give(3)
        await asyncio.sleep(0.05)
        player.frames += 1
        player.give(3)
        player.end()

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = plan
            if streaming:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await post(client, text="Hello.", format="pcm")
            else:
                reply, body = await post(client, text="Hello.", format="pcm", streaming=False)
                assert (reply.status, msgspec.json.decode(body)["error"]["code"]) == (500, "frames_lost")

    run(test)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/tts HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_never_ends_keeps_no_connection(tmp_path: Path, sent: bytes) -> None:
    async def test() -> None:
        async with serving(tmp_path, keepalive_timeout=0.3) as client:
            host, port = client.server.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            assert await asyncio.wait_for(reader.read(), 3) == b""
            writer.close()

    run(test)


def test_a_connection_too_many_is_told_so_and_the_others_stay(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_connections=2) as client:
            host, port = client.server.address.split(":")
            held = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            mute, mute_writer = await asyncio.open_connection(host, int(port))
            reply, body = await post(client, text="Hello.")
            assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
            assert msgspec.json.decode(body)["error"]["code"] == "too_many_connections"
            assert await asyncio.wait_for(mute.read(), 3) == b"", "who asks nothing is not waited for"
            mute_writer.close()
            assert client.registry.get_sample_value("shoal_http_connections") == 2
            held.pop()[1].close()
            await eventually(lambda: client.registry.get_sample_value("shoal_http_connections") < 2)
            assert (await post(client, text="Hello."))[0].status == 200
            held.pop()[1].close()

    run(test)


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 4096), 1256),
        ((256, 1100), 1100),  # as far as it goes
        ((256, resource.RLIM_INFINITY), 1256),
        ((2000, 4096), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_as_many_files_as_connections_need(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: int | None
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, to: calls.append(to))
    allow_files(1000)
    assert calls == ([] if raised is None else [(raised, limits[1])])


@pytest.mark.parametrize("again", [1, 3, 5])
def test_frames_that_come_again_after_the_loss_of_a_worker_are_heard_once(tmp_path: Path, again: int) -> None:
    async def plan(player: Player) -> None:
        player.give(5)
        player.frames -= again
        player.give(1)
        player.give(again + 2)
        player.end()

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = plan
            _, body = await post(client, text="Hello.", format="pcm")
            assert body == to_int16(tone(8)).tobytes()

    run(test)


@pytest.mark.parametrize("sound_format", ["mp3", "opus", "aac", "flac", "wav"])
def test_the_clock_of_a_long_stream_runs_evenly_to_its_end(sound_format: Any) -> None:
    """Time stamps neither go back nor jump, so that a player shows and seeks what it plays."""
    pipeline = Pipeline(Delivery(sound_format, 24_000), 24_000)
    second = tone(RATE // HOP + 1)[:24_000]
    data = b"".join([*(pipeline.encode(second) for _ in range(60 * MINUTES)), pipeline.flush()])
    with av.open(io.BytesIO(data)) as file:
        stamps = [(packet.pts, packet.duration, packet.time_base) for packet in file.demux(audio=0) if packet.size]
    starts = np.array([float(pts * base) for pts, _, base in stamps])
    assert (np.diff(starts) > 0).all()
    assert np.diff(starts).max() < 0.2
    last, duration, base = stamps[-1]
    assert abs(float((last + duration) * base) - float(stamps[0][0] * base) - 60 * MINUTES) < 0.1


ERRORS: list[tuple[str, str, dict[str, Any], int]] = [
    ("GET", "/v1/nothing", {}, 404),
    ("PUT", "/v1/tts", {}, 405),
    ("POST", "/v1/tts", {"data": b"{", "headers": {"Content-Type": "application/json"}}, 400),
    ("POST", "/v1/tts", {"data": b"x", "headers": {"Content-Type": "text/plain"}}, 415),
    ("POST", "/v1/tts", {"data": b" " * 3000, "headers": {"Content-Type": "application/json"}}, 413),
    ("POST", "/v1/tts", {"json": {"text": "Hello.", "reference_id": "nobody"}}, 400),
    ("POST", "/v1/audio/speech", {"json": {"input": "Hello.", "model": "gpt-4o"}}, 404),
    ("DELETE", "/v1/references/delete", {"json": {"reference_id": "nobody"}}, 404),
    ("GET", "/v1/tts/live", {}, 426),
    ("POST", "/v1/asr", {}, 501),
    ("GET", "/model/no.id", {}, 400),
]


@pytest.mark.parametrize(("method", "path", "options", "status"), ERRORS)
def test_every_error_has_the_one_body(
    tmp_path: Path, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path, max_body_bytes=2000) as client,
            client.http.request(method, path, **options) as reply,
        ):
            await _check(reply, status)

    run(test)


async def _check(reply: aiohttp.ClientResponse, status: int) -> None:
    assert reply.status == status
    assert reply.content_type == "application/json"
    assert reply.headers["X-Request-Id"]
    body = await reply.json()
    assert body["status"] == status
    assert body["message"] == body["detail"] == body["error"]["message"] != ""
    assert body["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/model", "/v1/tts", "/v1/references/add", "/v1/audio/voices"])
def test_a_part_whose_name_is_not_utf8_is_a_bad_form(tmp_path: Path, path: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            body = b'--x\r\nContent-Disposition: form-data; name="ti\xfftle"\r\n\r\nx\r\n--x--\r\n'
            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            async with client.post(path, data=body, headers=headers) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (400, "invalid_multipart")

    run(test)


@pytest.mark.parametrize(
    "kind", [b"multipart/form-data; \x9foundary=x", b"multipart/form-data; boundary=\xff", b"text/\xfe", b"\xfd"]
)
@pytest.mark.parametrize("path", [b"/v1/tts", b"/v1/codes", b"/model", b"/v1/audio/speech"])
def test_an_error_may_quote_a_header_that_is_not_utf8(tmp_path: Path, kind: bytes, path: bytes) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reader, writer = await asyncio.open_connection(*client.server.address.split(":"))
            head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " + kind
            writer.write(head + b"\r\nContent-Length: 4\r\n\r\nxxxx")
            reply = await asyncio.wait_for(reader.read(), 5)
            status, body = int(reply.split()[1]), msgspec.json.decode(reply.partition(b"\r\n\r\n")[2])
            assert status in (400, 415)
            assert body["error"]["code"]
            writer.close()

    run(test)
