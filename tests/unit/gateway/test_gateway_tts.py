"""``POST /v1/tts``: what arrives is the sound, whole; or the client can see that it is not."""

from __future__ import annotations

import asyncio
import io
import socket
import struct
import wave
from pathlib import Path

import aiohttp
import msgspec
import numpy as np
import pytest
import soundfile
from gateway_fakes import HOP, RATE, Client, Player, eventually, fail, post, run, serving, speak, tone

from common.messages import Failure
from gateway.audio import to_int16

BUSY = Failure(429, "too_many_requests", "too many requests wait", retry_after=3)
LOST = Failure(503, "worker_lost", "the worker was lost", retry_after=1)


async def never(player: Player) -> None:
    await asyncio.sleep(3600)


def test_streamed_and_buffered_sound_is_the_sound_of_the_engine(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 2, 4)
            expected = to_int16(tone(7)).tobytes()
            for streaming in (True, False):
                reply, body = await post(client, text="hello", format="pcm", streaming=streaming)
                assert reply.status == 200
                assert reply.headers["Content-Type"] == f"audio/pcm;rate={RATE};channels=1"
                assert body == expected
                reply, body = await post(client, text="hello", format="wav", streaming=streaming)
                assert reply.headers["Content-Type"] == "audio/wav"
                assert body[44:] == expected

    run(test)


def test_wav_sizes_are_exact_when_known_and_unbounded_when_streamed(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            _, body = await post(client, text="hello", format="wav", streaming=True)
            assert struct.unpack_from("<I", body, 4) == struct.unpack_from("<I", body, 40) == (0xFFFFFFFF,)
            samples, rate = soundfile.read(io.BytesIO(body), dtype="int16")
            assert (len(samples), rate) == (3 * HOP, RATE)
            reply, body = await post(client, text="hello", format="wav", streaming=False)
            assert int(reply.headers["Content-Length"]) == len(body)
            assert struct.unpack_from("<I", body, 4)[0] == len(body) - 8
            with wave.open(io.BytesIO(body)) as file:
                facts = (file.getnframes(), file.getframerate(), file.getnchannels(), file.getsampwidth())
            assert facts == (3 * HOP, RATE, 1, 2)

    run(test)


def test_mp3_is_the_default_has_no_tags_and_the_right_length(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 3, 16)
            bodies = set()
            for streaming in (True, False):
                reply, body = await post(client, text="hello", streaming=streaming)
                assert reply.headers["Content-Type"] == "audio/mpeg"
                bodies.add(body)
            assert len(bodies) == 1
            assert body[0] == 0xFF
            assert body[1] & 0xE0 == 0xE0
            assert all(tag not in body for tag in (b"ID3", b"TAG", b"Xing", b"Info"))
            samples, rate = soundfile.read(io.BytesIO(body))
            assert rate == RATE
            assert 0 <= len(samples) - 20 * HOP <= 3 * 1152  # the delay of encoder and decoder, and padding
            _, large = await post(client, text="hello", mp3_bitrate=192)
            assert len(large) == pytest.approx(1.5 * len(body), rel=0.05)

    run(test)


def test_headers_tell_seed_rate_frames_and_reason(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(2, reason="length")
            reply, _ = await post(client, text="hello", seed=-5, streaming=False)
            assert reply.headers["X-Seed"] == "-5"
            assert reply.headers["X-Sample-Rate"] == str(RATE)
            assert reply.headers["X-Frames"] == "2"
            assert reply.headers["X-Finish-Reason"] == "length"
            assert reply.headers["Cache-Control"] == "no-store"
            assert reply.headers["X-Accel-Buffering"] == "no"
            reply, _ = await post(client, text="hello")
            assert reply.headers["X-Seed"] == str(client.engine.submitted[-1][0].sampling.seed)

    run(test)


def test_a_sane_request_id_comes_back_and_is_never_that_of_the_engine(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for given_id, echoed in (("abc-1.2_3", True), ("a b", False), ("x" * 129, False)):
                headers = {"X-Request-Id": given_id, "Content-Type": "application/json"}
                async with client.post("/v1/tts", data=b'{"text": "a"}', headers=headers) as reply:
                    assert (reply.headers["X-Request-Id"] == given_id) == echoed
                    assert reply.headers["X-Request-Id"]
            assert "abc-1.2_3" not in {body.request for body, _ in client.engine.submitted}
            assert len({body.request for body, _ in client.engine.submitted}) == 3

    run(test)


def test_the_engine_is_told_what_was_asked(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, first_audio_deadline=9) as client:
            text = "<|speaker:0|>" + "a" * 90 + "<|speaker:1|>" + "b" * 90
            await post(client, text=text, chunk_length=100, top_k=7, max_new_tokens=11)
            body, prompt = client.engine.submitted[0]
            assert (body.output, body.streaming, body.sampling.top_k, body.max_frames) == ("audio", True, 7, 11)
            assert len(body.turns) == 2
            assert prompt.shape == (11, sum(body.turns))
            assert 8 < body.deadline <= 9
            await post(client, text=text, streaming=False)
            assert client.engine.submitted[1][0].deadline is None
            assert client.engine.submitted[1][0].streaming is False

    run(test)


@pytest.mark.parametrize("path", ["/v1/tts", "/v1/audio/speech"])
def test_the_engine_is_told_what_can_wait(tmp_path: Path, path: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            said = {"input" if path.endswith("speech") else "text": "hello"}
            await post(client, path, **said)
            await post(client, path, **said, priority="batch")
            assert [body.priority for body, _ in client.engine.submitted] == ["interactive", "batch"]

    run(test)


def test_credit_is_given_for_all_that_was_read(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 2, 4)
            for sound_format in ("pcm", "mp3"):
                client.engine.credit.clear()
                await post(client, text="hello", format=sound_format)
                assert client.engine.credit[-1] == 7
                assert client.engine.credit == sorted(client.engine.credit)
            assert client.engine.closed == [None, None]

    run(test)


async def raw(client: Client, fields: dict, version: str = "1.1") -> bytes:
    """The bytes of a whole reply on the wire."""
    host, port = client.server.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = msgspec.json.encode(fields)
    head = f"POST /v1/tts HTTP/{version}\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        return await reader.read()
    finally:
        writer.close()


def test_the_reason_of_the_end_is_a_trailer_on_the_wire(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, reason="length")
            reply = await raw(client, {"text": "hello", "format": "pcm"})
            head, _, body = reply.partition(b"\r\n\r\n")
            assert b"\r\nTrailer: X-Finish-Reason" in head
            assert b"\r\nTransfer-Encoding: chunked" in head
            assert body.startswith(f"{2 * HOP:x}\r\n".encode())
            assert body.endswith(b"\r\n0\r\nX-Finish-Reason: length\r\n\r\n")
            assert body.count(b"X-Finish-Reason") == 1

    run(test)


def test_http_1_0_gets_the_bare_sound(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reply = await raw(client, {"text": "hello", "format": "pcm"}, "1.0")
            head, _, body = reply.partition(b"\r\n\r\n")
            assert b"Trailer" not in head
            assert body == to_int16(tone(3)).tobytes()
            client.engine.plan = fail(2, LOST)
            with pytest.raises(ConnectionResetError):
                await raw(client, {"text": "hello", "format": "pcm"}, "1.0")

    run(test)


def test_the_connection_serves_another_request_after_a_stream(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for _ in range(3):
                _, body = await post(client, text="hello", format="pcm")
                assert len(body) == 6 * HOP

    run(test)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(("failure", "status"), [(BUSY, 429), (LOST, 503)])
def test_a_failure_before_the_first_sound_has_its_status(
    tmp_path: Path, streaming: bool, failure: Failure, status: int
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = fail(0, failure, "rejected")
            reply, body = await post(client, text="hello", streaming=streaming)
            assert reply.status == status
            assert reply.headers["Retry-After"] == str(failure.retry_after)
            assert msgspec.json.decode(body)["error"]["code"] == failure.code
            client.engine.failure = failure
            reply, _ = await post(client, text="hello", streaming=streaming)
            assert (reply.status, reply.headers["Retry-After"]) == (status, str(failure.retry_after))

    run(test)


def test_a_failure_in_mid_sentence_breaks_a_stream_and_is_the_status_of_a_file(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = fail(2, LOST)
            for sound_format in ("pcm", "wav", "mp3"):
                with pytest.raises(aiohttp.ClientPayloadError):
                    await post(client, text="hello", format=sound_format)
            reply, _ = await post(client, text="hello", streaming=False)
            assert reply.status == 503

    run(test)


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
def test_an_early_end_without_failure_is_not_whole_either(tmp_path: Path, reason) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(2, reason=reason)
            with pytest.raises(aiohttp.ClientPayloadError):
                await post(client, text="hello", format="pcm")

    run(test)


def test_no_frame_at_all_is_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak()
            for path in ("/v1/tts", "/v1/codes"):
                for streaming in (True, False):
                    reply, body = await post(client, path, text="hello", streaming=streaming)
                    assert (reply.status, msgspec.json.decode(body)["error"]["code"]) == (500, "no_audio")

    run(test)


def test_sound_that_does_not_come_in_time_is_refused_but_a_file_may_take_longer(tmp_path: Path) -> None:
    async def late(player: Player) -> None:
        await asyncio.sleep(0.3)
        player.give(1)
        player.end()

    async def test() -> None:
        async with serving(tmp_path, first_audio_deadline=0.1) as client:
            client.engine.plan = late
            reply, body = await post(client, text="hello")
            assert (reply.status, msgspec.json.decode(body)["error"]["code"]) == (503, "deadline_exceeded")
            assert int(reply.headers["Retry-After"]) > 0
            assert client.engine.closed == ["timeout"]
            reply, _ = await post(client, text="hello", streaming=False)
            assert reply.status == 200

    run(test)


def test_a_client_that_goes_away_cancels_at_once(tmp_path: Path) -> None:
    async def halfway(player: Player) -> None:
        while True:  # a client that has gone shows when something is sent to it
            player.give(1)
            await asyncio.sleep(0.02)

    async def leave(client: Client, fields: dict) -> None:
        asked, gone = len(client.engine.submitted), len(client.engine.closed)
        request = asyncio.create_task(post(client, **fields))
        await eventually(lambda: len(client.engine.submitted) > asked)
        await asyncio.sleep(0)  # the engine's part begins
        request.cancel()
        await eventually(lambda: len(client.engine.closed) > gone)

    async def test() -> None:
        async with serving(tmp_path) as client:
            for plan in (never, halfway):
                client.engine.plan = plan
                for streaming in (True, False):
                    await leave(client, {"text": "hello", "streaming": streaming})
            await leave(client, {"text": "hello", "path": "/v1/codes"})
            assert client.engine.closed == ["cancelled"] * 5
            await eventually(client.gateway.idle.is_set)

    run(test)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_does_not_read_is_cut_off_and_holds_back_credit(tmp_path: Path, streaming: bool) -> None:
    frames = 400  # 1.6 MB, more than all buffers on the way hold

    async def test() -> None:
        async with serving(tmp_path, slow_client_timeout=0.3) as client:
            client.engine.plan = speak(*[20] * (frames // 20))
            host, port = client.server.address.split(":")
            with socket.socket() as reader:
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
                reader.setblocking(False)
                await asyncio.get_running_loop().sock_connect(reader, (host, int(port)))
                body = msgspec.json.encode({"text": "hello", "format": "pcm", "streaming": streaming})
                head = b"POST /v1/tts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                await asyncio.get_running_loop().sock_sendall(reader, head + b"%d\r\n\r\n" % len(body) + body)
                await eventually(lambda: client.engine.closed)
                assert client.engine.closed == ["slow_client" if streaming else None]
                if streaming:
                    assert client.engine.credit[-1] < frames / 2
                await eventually(client.gateway.idle.is_set)
            outcomes = client.gateway.metrics.requests.labels("tts", "pcm", "slow_client")
            assert outcomes._value.get() == 1

    run(test)


def test_an_unexpected_error_is_a_500_without_details(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.encode = None
            client.engine.submit = lambda *_: 1 / 0
            reply, body = await post(client, text="hello")
            assert (reply.status, msgspec.json.decode(body)["message"]) == (500, "internal error")

    run(test)


def test_int16_is_rounded_and_clipped_not_wrapped() -> None:
    samples = np.array([0, 1, -1, 1.5, -1.5, 0.5, 1 / 32768, 0.6 / 32768, -0.6 / 32768], np.float32)
    assert to_int16(samples).tolist() == [0, 32767, -32768, 32767, -32768, 16384, 1, 1, -1]
