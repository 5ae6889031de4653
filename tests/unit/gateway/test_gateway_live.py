"""``WS /v1/tts/live``: sentences are spoken as they come, in one coded stream, and a client can break in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest
from aiohttp import WSMsgType
from gateway_fakes import HOP, MINI_MODEL, Client, Player, eventually, fail, run, serving, speak, tone

from common.messages import Failure
from gateway.api import live
from gateway.audio import to_int16
from gateway.speech import live_utterance

LIVEKIT = {"User-Agent": "livekit-plugins-fishaudio/1.8.9"}
PCM = {"format": "pcm", "sample_rate": 16000}


class Socket:
    """A client's end of the WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.raw = socket
        self.frames: list[bytes] = []

    async def send(self, event: str, **values: Any) -> None:
        await self.raw.send_bytes(msgspec.msgpack.encode({"event": event} | values))

    async def start(self, **fields: Any) -> None:
        await self.send("start", request={"text": ""} | PCM | fields)

    async def receive(self) -> dict[str, Any]:
        message = await self.raw.receive(5)
        assert message.type is WSMsgType.BINARY, message
        return msgspec.msgpack.decode(message.data)

    async def finish(self) -> dict[str, Any]:
        """Gather the sound up to the end of it."""
        while (event := await self.receive())["event"] != "finish":
            if event["event"] == "audio":
                self.frames.append(event["audio"])
        return event

    async def closed(self) -> int | None:
        """How the server closed the socket."""
        message = await self.raw.receive(5)
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED), message
        return self.raw.close_code

    @property
    def sound(self) -> bytes:
        return b"".join(self.frames)


@contextlib.asynccontextmanager
async def connected(client: Client, path: str = "/v1/tts/live", **options: Any) -> AsyncIterator[Socket]:
    async with client.http.ws_connect(path, **options) as socket:
        yield Socket(socket)


def texts(client: Client) -> list[int]:
    """Lengths of the prompts that the engine has."""
    return [prompt.shape[1] for _, prompt in client.engine.submitted]


async def never(player: Player) -> None:
    await asyncio.sleep(3600)


def test_start_text_stop_gives_the_sound_and_one_finish_and_the_socket_closes(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = speak(2, 3)
            for path in ("/v1/tts/live", "/compat/v1/tts/live?model=s1"):
                async with connected(client, path) as socket:
                    await socket.start()
                    await socket.send("text", text="Hi")
                    await socket.send("unheard-of", text=5)
                    await socket.send("stop")
                    assert await socket.finish() == {"event": "finish", "reason": "stop"}
                    assert await socket.closed() == 1000
                    assert socket.sound == to_int16(tone(5)).tobytes()
            assert client.engine.in_flight == 0

    run(test)


def test_each_sentence_is_spoken_when_it_is_whole_and_the_rest_on_flush_or_stop(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            async with connected(client) as socket:
                await socket.start(text="")
                for piece in ("Hel", "lo there", ". How"):
                    assert texts(client) == []
                    await socket.send("text", text=piece)
                assert len((await socket.receive())["audio"]) == 2 * 3 * HOP  # with no further word
                assert len(client.engine.submitted) == 1
                await socket.send("flush")
                assert (await socket.receive())["event"] == "audio"
                assert len(client.engine.submitted) == 2
                for nothing in ("", " \n "):
                    await socket.send("text", text=nothing)
                    await socket.send("flush")
                await socket.send("text", text=" and good bye")
                await socket.send("stop")
                assert (await socket.finish())["reason"] == "stop"
            build = MINI_MODEL.prompts.build
            said = ["Hello there.", " How", "   and good bye"]
            assert [build([text.strip()], [])[0].shape[1] for text in said] == texts(client)

    run(test)


def test_text_in_start_counts_and_stop_with_nothing_said_is_a_finish(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            async with connected(client) as socket:
                await socket.start(text="Said at once")
                await socket.send("stop")
                assert (await socket.finish())["reason"] == "stop"
                assert len(socket.sound) == 2 * 3 * HOP
            for said in ("", " ... 🙂 "):
                async with connected(client) as socket:
                    await socket.start()
                    await socket.send("text", text=said)
                    await socket.send("flush")
                    await socket.send("stop")
                    assert await socket.finish() == {"event": "finish", "reason": "stop"}
                    assert socket.frames == []
            assert len(client.engine.submitted) == 1

    run(test)


@pytest.mark.parametrize("form", ["wav", "mp3", "opus", "flac"])
def test_there_is_one_coded_stream_across_flushes_and_each_flush_pushes_it_out(tmp_path: Path, form: str) -> None:
    pytest.importorskip("av")

    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = speak(8)
            async with connected(client) as socket:
                await socket.start(format=form, sample_rate=None)
                sizes = []
                for _ in range(3):
                    await socket.send("text", text="One more")
                    await socket.send("flush")
                    size = 0
                    with contextlib.suppress(TimeoutError):
                        while True:
                            message = await socket.raw.receive(0.25)
                            socket.frames.append(msgspec.msgpack.decode(message.data)["audio"])
                            size += len(socket.frames[-1])
                    sizes.append(size)
                await socket.send("stop")
                assert (await socket.finish())["reason"] == "stop"
            head = {"wav": b"RIFF", "mp3": b"\xff", "opus": b"OpusHead", "flac": b"fLaC"}[form]
            assert head in socket.frames[0]
            if form != "mp3":
                assert socket.sound.count(head) == 1
            assert min(sizes) > 0.5 * max(sizes)
            samples = decoded(socket.sound)
            rate = 48000 if form == "opus" else 16000
            seconds = 3 * 8 * HOP / 16000
            assert seconds <= len(samples) / rate + 0.05
            assert len(samples) / rate < seconds + 3 * 0.35

    run(test)


def decoded(data: bytes) -> np.ndarray:
    import io

    import av

    with av.open(io.BytesIO(data)) as container:
        return np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])


def test_frames_are_small_and_of_whole_samples(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = speak(100, 33)
            async with connected(client) as socket:
                await socket.start()
                await socket.send("text", text="Long.")
                await socket.send("stop")
                await socket.finish()
                assert len(socket.sound) == 2 * 133 * HOP
                assert all(len(frame) <= 256 * 1024 and len(frame) % 2 == 0 for frame in socket.frames)

    run(test)


def test_pooling_clients_may_start_again_on_the_same_socket(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, connected(client, headers=LIVEKIT) as socket:
            for turn in range(3):
                await socket.start()
                await socket.send("text", text="A turn.")
                await socket.send("stop")
                assert (await socket.finish())["reason"] == "stop"
                assert len(socket.sound) == (turn + 1) * 2 * 3 * HOP
            await socket.start(top_p=7)
            assert (await socket.finish())["reason"] == "error"
            await socket.send("text", text="for the one that failed")
            await socket.start(text="Fine again.")
            await socket.send("stop")
            assert (await socket.finish())["reason"] == "stop"

    run(test)


@pytest.mark.parametrize(
    ("policy", "headers", "kept"), [("close", LIVEKIT, False), ("keep", {}, True), ("auto", {}, False)]
)
def test_what_follows_finish_is_configured(tmp_path: Path, policy: str, headers: dict[str, str], kept: bool) -> None:
    async def test() -> None:
        settings = {"live_after_finish": policy}
        async with serving(tmp_path, MINI_MODEL, **settings) as client, connected(client, headers=headers) as socket:
            await socket.start()
            await socket.send("stop")
            await socket.finish()
            if kept:
                with pytest.raises(TimeoutError):
                    await socket.raw.receive(0.1)
            else:
                assert await socket.closed() == 1000

    run(test)


@pytest.mark.parametrize("how", ["close", "stop and close", "start", "abort"])
def test_barge_in_frees_the_engine_at_once(tmp_path: Path, how: str) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = never
            async with connected(client) as socket:
                await socket.start(text="This will never be spoken to its end. And this.")
                await eventually(lambda: client.engine.streams)
                client.engine.plan = speak(3)
                if how == "start":
                    await socket.start(text="Something else.")
                    await socket.send("stop")
                    assert (await socket.finish())["reason"] == "stop"
                    assert len(socket.sound) == 2 * 3 * HOP
                elif how == "abort":
                    assert socket.raw._response.connection is not None
                    socket.raw._response.connection.transport.abort()
                else:
                    if how == "stop and close":
                        await socket.send("stop")
                    await socket.raw.close()
                await eventually(lambda: not client.engine.in_flight)
            assert client.engine.closed[0] == "cancelled"
            async with asyncio.timeout(1):
                await client.gateway.idle.wait()
            assert not client.gateway.sockets

    run(test)


def test_streams_on_sockets_are_measured_like_those_over_http(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, connected(client) as socket:
            client.engine.plan = speak(2, 3)
            await socket.start(text="A sentence of some words.")
            await socket.send("stop")
            assert (await socket.finish())["reason"] == "stop"
            value = client.registry.get_sample_value
            assert value("shoal_time_to_first_audio_seconds_count") == 1
            assert value("shoal_audio_chunk_gap_seconds_count") == 1
            assert value("shoal_audio_chunk_lateness_seconds_count") == 1
            assert value("shoal_audio_underrun_seconds_count") == 1
            assert value("shoal_real_time_factor_ratio_count") == 1
            assert value("shoal_audio_seconds_total") == pytest.approx(5 * HOP / 16000)

    run(test)


def test_a_pause_between_texts_is_no_gap(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, connected(client) as socket:
            client.engine.plan = speak(2)
            await socket.start(text="The first sentence is here. ")
            await socket.send("flush")
            assert (await socket.receive())["event"] == "audio"
            await asyncio.sleep(0.3)  # longer than the sound lasts: the client is still writing
            await socket.send("text", text="And here is another one.")
            await socket.send("stop")
            assert (await socket.finish())["reason"] == "stop"
            value = client.registry.get_sample_value
            assert value("shoal_audio_seconds_total") == pytest.approx(4 * HOP / 16000)
            assert value("shoal_audio_chunk_gap_seconds_count") == 0
            assert value("shoal_audio_underrun_seconds_sum") == 0
            assert value("shoal_real_time_factor_ratio_sum") < 0.3 / (4 * HOP / 16000)

    run(test)


def test_refusals_of_sockets_and_of_their_utterances_are_counted(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_live=1) as client, connected(client) as socket:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.http.ws_connect("/v1/tts/live")
            assert refused.value.status == 429
            client.engine.plan = fail(0, Failure(503, "overloaded", "no room", retry_after=2), "rejected")
            await socket.start(text="A sentence that nobody has room for.")
            await socket.send("stop")
            assert (await socket.finish())["reason"] == "error"
            counted = [
                client.registry.get_sample_value("shoal_live_refusals_total", {"code": c}) for c in ("429", "503")
            ]
            assert counted == [1, 1]

    run(test)


@pytest.mark.parametrize("stop", [True, False])
def test_who_leaves_when_all_is_spoken_has_cancelled_nothing(tmp_path: Path, stop: bool) -> None:
    async def spoken(player: Player) -> None:
        player.give(3)
        player.rest()

    async def test() -> None:
        async with serving(tmp_path) as client, connected(client) as socket:
            client.engine.plan = spoken
            await socket.start(text="All that I wanted to hear. ")
            await socket.receive()
            if stop:
                await socket.send("stop")
            await socket.raw.close()
            await eventually(lambda: not client.engine.in_flight)
            assert client.engine.closed == ["stop"]
            labels = {"api": "live", "format": "pcm"}
            assert client.registry.get_sample_value("shoal_requests_total", labels | {"outcome": "stop"}) == 1
            assert client.registry.get_sample_value("shoal_cancels_total", {"cause": "disconnect"}) == 0

    run(test)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\xc1", "invalid_msgpack"),
        (msgspec.msgpack.encode([1]), "invalid_msgpack"),
        (msgspec.msgpack.encode({"event": "text", "text": "too early"}), "not_started"),
        (msgspec.msgpack.encode({"event": "start", "request": 5}), "invalid_value"),
        (msgspec.msgpack.encode({"event": "start", "request": {"text": "a", "format": "ogg"}}), "invalid_value"),
        (msgspec.msgpack.encode({"event": "start", "request": {"text": "a<|im_end|>b"}}), "invalid_value"),
        (
            msgspec.msgpack.encode({"event": "start", "request": {"text": "a", "reference_id": "nobody"}}),
            "voice_not_found",
        ),
    ],
)
def test_errors_are_an_event_and_a_finish(tmp_path: Path, sent: bytes, code: str) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, connected(client) as socket:
            await socket.raw.send_bytes(sent)
            error = await socket.receive()
            assert (error["event"], error["code"]) == ("error", code)
            finish = await socket.receive()
            assert finish == {"event": "finish", "reason": "error", "message": error["error"]}
            assert await socket.closed() == 1000
            assert client.engine.in_flight == 0

    run(test)


def test_what_fails_while_it_is_spoken_is_an_error_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = fail(2, Failure(503, "worker_lost", "the worker was lost"))
            async with connected(client) as socket:
                await socket.start(text="Some words.")
                await socket.send("flush")
                assert (await socket.receive())["event"] == "audio"
                assert (await socket.receive())["code"] == "worker_lost"
                assert (await socket.receive())["reason"] == "error"

    run(test)


@pytest.mark.parametrize("fields", [{"reference_id": "nobody"}, {"top_p": 7}])
def test_after_an_error_the_connection_stays_until_the_client_has_closed_too(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    """Else what it still sends is answered with a reset, by which it may lose what it has not read."""

    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, connected(client, autoclose=False) as socket:
            await socket.start(text="Some words.", **fields)
            assert (await socket.finish())["reason"] == "error"
            assert await socket.closed() == 1000
            connection = socket.raw.get_extra_info("socket")
            for _ in range(5):
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    await socket.send("text", text="more of them")
                await asyncio.sleep(0.05)
                assert connection.fileno() != -1, "the server has left"
            assert client.gateway.sockets
            await socket.raw.close()
            await eventually(lambda: not client.gateway.sockets)

    run(test)


def test_a_control_token_in_pieces_and_odd_types_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            async with connected(client) as socket:
                await socket.start()
                await socket.send("text", text="Stop <|im_")
                await socket.send("text", text="end|> here. ")
                await socket.send("flush")
                assert (await socket.receive())["status"] == 400
            async with connected(client) as socket:
                await socket.start()
                await socket.send("text", text=5)
                assert "text" in (await socket.receive())["error"]
            async with connected(client) as socket:
                await socket.raw.send_str('{"event": "start"}')
                assert (await socket.finish())["reason"] == "error"
                assert await socket.closed() == 1003
            assert client.engine.submitted == []

    run(test)


def test_more_text_than_is_kept_is_refused_and_none_is_lost_before(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL, max_text_length=2000) as client:
            client.engine.plan = never
            async with connected(client) as socket:
                await socket.start()
                with contextlib.suppress(ConnectionError):
                    for _ in range(200):
                        await socket.send("text", text="A sentence of some words. " * 10)
                error = await socket.receive()
                assert (error["event"], error["code"]) == ("error", "text_buffer_full")
                assert (await socket.receive())["reason"] == "error"
            assert client.engine.in_flight == 0

    run(test)


def test_messages_that_are_too_large_close_the_socket(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, connected(client) as socket:
            await socket.start(text="A.", features=["x" * 5_000_000])
            await socket.send("stop")
            assert (await socket.finish())["reason"] == "stop"
        async with serving(tmp_path, MINI_MODEL, max_body_bytes=50_000) as client, connected(client) as socket:
            await socket.send("text", text="x" * 51_000)
            assert await socket.closed() == 1009

    run(test)


def test_the_stream_stays_open_while_no_text_comes_and_the_socket_is_closed_in_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL, live_idle_timeout=1.5) as client, connected(client) as socket:
            await socket.start(text="First. ")
            assert (await socket.receive())["event"] == "audio"
            await asyncio.sleep(0.4)
            await socket.send("text", text="Second. ")
            assert (await socket.receive())["event"] == "audio"
            assert (await socket.receive())["code"] == "idle"
            assert (await socket.receive())["reason"] == "error"
            assert await socket.closed() == 1000

    run(test)


def test_refusals_come_before_the_upgrade_as_json(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL, max_live=1) as client:
            async with client.get("/v1/tts/live") as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (426, "upgrade_required")
            async with connected(client):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                    await client.http.ws_connect("/v1/tts/live")
                assert (refusal.value.status, refusal.value.headers["Retry-After"]) == (429, "5")
            client.engine.reasons = {"ar_worker": "starting"}
            with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                await client.http.ws_connect("/v1/tts/live")
            assert refusal.value.status == 503
            assert "application/json" in refusal.value.headers["Content-Type"]

    run(test)


def test_compression_is_not_agreed_to_and_pings_are_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = never
            async with client.http.ws_connect("/v1/tts/live", compress=15, autoping=False) as socket:
                assert socket.compress == 0
                await socket.send_bytes(msgspec.msgpack.encode({"event": "start", "request": {"text": "Never."}}))
                await socket.ping(b"well?")
                pong = await socket.receive(2)
                assert (pong.type, bytes(pong.data)) == (WSMsgType.PONG, b"well?")

    run(test)


def test_a_drain_closes_idle_sockets_and_waits_for_those_that_speak(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            release = asyncio.Event()

            async def plan(player: Player) -> None:
                player.give(1)
                await release.wait()
                player.end()

            client.engine.plan = plan
            async with connected(client, headers=LIVEKIT) as idle, connected(client) as busy:
                await busy.start(text="Some words.")
                await busy.send("stop")
                assert (await busy.receive())["event"] == "audio"
                drain = asyncio.create_task(client.server.drain(5))
                assert await idle.closed() == 1001
                assert not drain.done()
                release.set()
                assert (await busy.finish())["reason"] == "stop"
                assert await busy.closed() == 1001
                await asyncio.wait_for(drain, 2)

    run(test)


def test_what_a_drain_can_not_wait_for_is_told_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            client.engine.plan = never
            async with connected(client) as socket:
                await socket.start(text="Some words.")
                await socket.send("stop")
                await eventually(lambda: client.engine.streams)
                await client.server.drain(0.05)
                closing = asyncio.create_task(client.server.close())
                assert (await socket.receive())["code"] == "draining"
                assert (await socket.receive())["reason"] == "error"
                assert await socket.closed() == 1001
                await closing
            assert client.engine.closed == ["cancelled"]

    run(test)


def test_a_speaker_goes_on_until_the_next_tag(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client:
            async with connected(client) as socket:
                await socket.start()
                for piece in ("<|speaker:1|>First. Sec", "ond. <|spea", "ker:0|>Third."):
                    await socket.send("text", text=piece)
                    await asyncio.sleep(0.05)
                await socket.send("stop")
                await socket.finish()
            said = ["<|speaker:1|>First.", "<|speaker:1|>Second.", "<|speaker:0|>Third."]
            expected = [MINI_MODEL.prompts.build([text], [])[0] for text in said]
            for (_, prompt), built in zip(client.engine.submitted, expected, strict=True):
                assert np.array_equal(prompt, built)

    run(test)


def test_a_client_that_reads_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CLOSE_SECONDS", 0.2)

    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL, slow_client_timeout=0.3) as client:
            client.engine.plan = speak(*[400] * 12)
            async with connected(client) as socket:
                assert socket.raw._response.connection is not None
                transport = socket.raw._response.connection.transport
                transport.pause_reading()
                await socket.start(text="Some words. ")
                await eventually(lambda: "slow_client" in client.engine.closed, 5)
                transport.abort()

    run(test)


@pytest.mark.parametrize("place", ["Pipeline.encode", "Pipeline.flush", "Pipeline.__init__", "TurnScript.add"])
def test_whatever_breaks_is_one_error_and_one_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise ZeroDivisionError("broken")

    owner, name = place.split(".")
    monkeypatch.setattr(getattr(live_utterance, owner), name, broken)

    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, connected(client, headers=LIVEKIT) as socket:
            client.engine.plan = speak(2, 3)
            await socket.start()
            await socket.send("text", text="Hello there. And more.")
            await socket.send("stop")
            events = [event := await socket.receive()]
            while event["event"] != "finish":
                events.append(event := await socket.receive())
            told = [event for event in events if event["event"] != "audio"]
            assert [event["event"] for event in told] == ["error", "finish"]
            assert (told[0]["status"], told[0]["code"], told[1]["reason"]) == (500, "internal_error", "error")
            await eventually(lambda: client.engine.in_flight == 0)
            monkeypatch.undo()
            await socket.start()
            await socket.send("text", text="Hello there.")
            await socket.send("stop")
            assert (await socket.finish())["reason"] == "stop"

    run(test)


def test_one_client_can_not_take_all_sockets(tmp_path: Path) -> None:
    async def test() -> None:
        (tmp_path / "keys.toml").write_text("".join(f'[[key]]\nname = "{name}"\nkey = "{name}"\n' for name in "ab"))
        keys = str(tmp_path / "keys.toml")
        async with serving(tmp_path, api_keys_file=keys, max_live_per_client=1) as client:
            anna, bert = ({"Authorization": f"Bearer {name}"} for name in "ab")
            async with connected(client, headers=anna):
                await eventually(lambda: len(client.gateway.sockets) == 1)
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await client.http.ws_connect("/v1/tts/live", headers=anna)
                assert refused.value.status == 429
                async with connected(client, headers=bert) as socket:
                    await socket.start()
            await eventually(lambda: not client.gateway.sockets)
            async with connected(client, headers=anna) as socket:
                await socket.start()

    run(test)
