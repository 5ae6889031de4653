"""OpenAI's doors: what its clients send is understood, what they get is what they expect."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
import pytest
import soundfile
import soxr
from gateway_fakes import HOP, RATE, TINY_MODEL, Client, fail, post, run, serving, speak, tone
from gateway_sound import CONTENT_TYPE, decode, heard, noise_db

from common.messages import Failure
from gateway.api.openai import STANDARD_VOICES
from gateway.schema.openai_fields import translate

SPEECH = "/v1/audio/speech"
TINY = TINY_MODEL.name


def recording(seconds: float = 2.0) -> bytes:
    file = io.BytesIO()
    time = np.arange(int(seconds * 16_000)) / 16_000
    soundfile.write(file, 0.3 * np.sin(2 * np.pi * 300 * time), 16_000, format="WAV")
    return file.getvalue()


async def say(client: Client, **fields: Any) -> tuple[aiohttp.ClientResponse, bytes]:
    """As OpenAI's Python client would."""
    return await post(client, SPEECH, **({"model": "gpt-4o-mini-tts", "input": "hello", "voice": "alloy"} | fields))


async def refused(client: Client, **fields: Any) -> tuple[int, str | None, str]:
    reply, body = await say(client, **fields)
    error = msgspec.json.decode(body)["error"]
    assert error["param"] is None or error["param"] in error["message"]
    return reply.status, error["param"], error["code"]


async def add_voice(client: Client, name: str, **texts: str) -> tuple[int, dict[str, Any]]:
    form = aiohttp.FormData({"name": name, "consent": "cons_1", "type": "audio_sample"} | texts)
    form.add_field("audio_sample", recording(), filename="upload", content_type="application/octet-stream")
    async with client.post("/v1/audio/voices", data=form) as reply:
        return reply.status, await reply.json()


async def prompt_of(client: Client, **fields: Any) -> bytes:
    """The prompt that a request becomes."""
    reply, body = await say(client, **fields)
    assert reply.status == 200, body
    return client.engine.submitted[-1][1].tobytes()


def events_of(body: bytes) -> list[dict[str, Any]]:
    blocks = body.decode().split("\n\n")
    assert blocks.pop() == ""
    return [msgspec.json.decode(block.removeprefix("data: ")) for block in blocks]


def test_mp3_is_the_default_and_pcm_has_24_khz(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reply, body = await say(client)
            assert (reply.status, reply.headers["Content-Type"]) == (200, "audio/mpeg")
            assert decode(body).rate == RATE
            assert reply.headers["X-Request-Id"]
            assert "X-Ignored-Fields" not in reply.headers
            reply, body = await say(client, response_format="pcm")
            assert reply.headers["Content-Type"] == "audio/pcm;rate=24000;channels=1"
            expected = soxr.resample(tone(3), RATE, 24_000)
            assert noise_db(expected, np.frombuffer(body, "<i2") / 32768) < -60
            reply, body = await say(client, response_format="pcm", sample_rate=16_000)
            assert reply.headers["X-Sample-Rate"] == "16000"

    run(test)


@pytest.mark.parametrize("sound_format", ["mp3", "opus", "aac", "flac", "wav"])
def test_every_format_streamed_buffered_and_as_events(tmp_path: Path, sound_format: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 2, 5)
            for more in ({}, {"stream": False}, {"stream_format": "sse"}):
                reply, body = await say(client, response_format=sound_format, **more)
                if "stream_format" in more:
                    assert reply.headers["Content-Type"] == "text/event-stream"
                    *deltas, done = events_of(body)
                    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
                    body = b"".join(base64.b64decode(event["audio"]) for event in deltas)
                    tokens = sum(client.engine.submitted[-1][0].turns)
                    usage = {"input_tokens": tokens, "output_tokens": 8, "total_tokens": tokens + 8}
                    assert done == {"type": "speech.audio.done", "usage": usage}
                else:
                    assert reply.headers["Content-Type"] == CONTENT_TYPE[sound_format]
                    assert ("Content-Length" in reply.headers) == (more == {"stream": False})
                rate = int(reply.headers["X-Sample-Rate"])
                heard(sound_format, body, round(8 * HOP * rate / RATE))

    run(test)


def test_speed_is_exact_from_a_quarter_to_four(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(3, 5)
            for speed in (0.25, 1, 1.0, 1.5, 4):
                _, body = await say(client, response_format="pcm", sample_rate=RATE, speed=speed)
                assert len(body) == 2 * round(8 * HOP / speed)

    run(test)


def test_what_the_engine_is_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reply, _ = await say(
                client, seed=7, temperature=0.5, top_p=0.9, top_k=5, max_new_tokens=9, stream=False, language="en"
            )
            body, _ = client.engine.submitted[0]
            sampling = body.sampling
            assert (sampling.seed, sampling.temperature, sampling.top_p, sampling.top_k) == (7, 0.5, 0.9, 5)
            assert (body.max_frames, body.streaming) == (9, False)
            assert (reply.headers["X-Seed"], reply.headers["X-Ignored-Fields"]) == ("7", "language")

    run(test)


BAD: list[tuple[str, Any, str]] = [
    ("input", None, "missing_field"),
    ("input", " ", "invalid_value"),
    ("input", 5, "invalid_value"),
    ("input", "a<|im_end|>b", "invalid_value"),
    ("response_format", "ogg", "invalid_value"),
    ("response_format", 1, "invalid_value"),
    ("speed", 0.24, "invalid_value"),
    ("speed", 4.1, "invalid_value"),
    ("speed", "fast", "invalid_value"),
    ("stream_format", "json", "invalid_value"),
    ("stream", "yes", "invalid_value"),
    ("instructions", 5, "invalid_value"),
    ("model", 5, "invalid_value"),
    ("voice", 5, "invalid_value"),
    ("voice", ["alloy"], "invalid_value"),
    ("voice.id", {"name": "x"}, "missing_field"),
    ("voice", "nobody", "voice_not_found"),
    ("voice", "Alloy", "voice_not_found"),
    ("voice", "../x", "invalid_value"),
    ("sample_rate", 7999, "invalid_value"),
    ("seed", "1", "invalid_value"),
    ("temperature", 3, "invalid_value"),
    ("ref_audio", "https://example.com/a.wav", "invalid_value"),
    ("ref_audio", "file:///etc/passwd", "invalid_value"),
    ("ref_audio", "/etc/passwd", "invalid_value"),
    ("ref_audio", "data:audio/wav,abc", "invalid_value"),
    ("ref_audio", base64.b64encode(b"no sound").decode(), "invalid_value"),
    ("ref_audio", 5, "invalid_value"),
    ("references[0].audio", [{"audio_path": "/etc/passwd", "text": "x"}], "missing_field"),
]


def test_bad_fields_are_refused_by_the_names_openai_has_for_them(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for param, value, code in BAD:
                field = param.split(".")[0].split("[")[0]
                more = {"ref_text": "said"} if field == "ref_audio" else {}
                assert await refused(client, **{field: value}, **more) == (400, param, code), value
            assert client.engine.submitted == []

    run(test)


def test_a_recording_without_its_text_is_refused_before_the_engine(tmp_path: Path) -> None:
    audio = base64.b64encode(recording()).decode()

    async def test() -> None:
        async with serving(tmp_path) as client:
            for more in ({}, {"ref_text": None}):
                assert await refused(client, ref_audio=audio, **more) == (400, "ref_text", "missing_field")
            assert await refused(client, ref_audio=audio, ref_text="") == (400, "ref_text", "missing_field")
            assert await refused(client, ref_text="said") == (400, "ref_audio", "missing_field")
            both = {"references": [{"audio": audio, "text": "said"}]}
            assert (await refused(client, ref_audio=audio, ref_text="said", **both))[1] == "ref_audio"
            assert client.engine.encoded == []

    run(test)


def test_a_recording_of_the_request_is_the_voice(tmp_path: Path) -> None:
    audio = base64.b64encode(recording()).decode()

    async def test() -> None:
        async with serving(tmp_path) as client:
            plain = await prompt_of(client)
            listed = await prompt_of(client, references=[{"audio": audio, "text": "said"}])
            assert listed != plain
            assert await prompt_of(client, ref_audio=audio, ref_text="said") == listed
            assert await prompt_of(client, ref_audio=f"data:audio/wav;base64,{audio}", ref_text="said") == listed

    run(test)


def test_a_voice_in_every_form(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, openai_voices={"nova": "anna", "echo": "", "robot": "anna"}) as client:
            plain = await prompt_of(client)
            status, voice = await add_voice(client, "anna", ref_text="What is said.")
            assert (status, voice["id"], voice["object"], voice["name"]) == (200, "anna", "audio.voice", "anna")
            anna = await prompt_of(client, voice="anna")
            assert anna != plain
            for by_name in ("nova", "robot", {"id": "anna"}, {"id": "nova"}):
                assert await prompt_of(client, voice=by_name) == anna
            for by_default in ("", None, "default", {"id": "default"}, *(STANDARD_VOICES - {"nova"})):
                assert await prompt_of(client, voice=by_default) == plain

    run(test)


def test_a_voice_of_the_library_goes_before_a_standard_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            plain = await prompt_of(client)
            assert (await add_voice(client, "alloy", ref_text="What is said."))[0] == 200
            assert await prompt_of(client, voice="alloy") != plain
            assert await prompt_of(client, voice="ash") == plain

    run(test)


def test_a_voice_may_come_as_the_model(tmp_path: Path) -> None:
    """LocalAI's clients send it so."""

    async def test() -> None:
        async with serving(tmp_path) as client:
            for name in ("anna", "my-tts-voice"):
                await add_voice(client, name, ref_text=f"What is said by {name}.")
            anna, other = [await prompt_of(client, voice=name) for name in ("anna", "my-tts-voice")]
            for voice in (None, ""):
                assert await prompt_of(client, model="anna", voice=voice) == anna
                assert await prompt_of(client, model="my-tts-voice", voice=voice) == other
            assert await prompt_of(client, model="my-tts-voice", voice="anna") == anna
            assert await prompt_of(client, model="anna", voice="my-tts-voice") == other

    run(test)


@pytest.mark.parametrize("name", [None, "", TINY, "tts-1", "tts-1-hd", "gpt-4o-mini-tts", "s2-pro", "speech-1.5"])
def test_models_for_speech_are_ours(tmp_path: Path, name: str | None) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            assert (await say(client, model=name))[0].status == 200
            if name:
                async with client.get(f"/v1/models/{name}") as reply:
                    body = await reply.json()
                assert (reply.status, body["id"], body["object"]) == (200, name, "model")
                assert (body["task"], body["sample_rate"]) == ("text-to-speech", RATE)
                assert body["voices"] == [{"name": "default"}]

    run(test)


def test_a_model_for_something_else_is_not_found(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for name in ("gpt-4o", "whisper-1", "text-embedding-3-small", "../x"):
                assert await refused(client, model=name) == (404, "model", "model_not_found")
            async with client.get("/v1/models/gpt-4o") as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (404, "model_not_found")
            assert client.engine.submitted == []

    run(test)


def test_what_clients_look_for_is_there_also_under_compat(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, openai_voices={"nova": "anna"}) as client:
            await add_voice(client, "anna", ref_text="What is said.")
            for prefix in ("", "/compat"):
                async with client.get(f"{prefix}/v1/models") as reply:
                    (listed,) = (await reply.json())["data"]
                assert (listed["id"], listed["object"], type(listed["created"])) == (TINY, "model", int)
                async with client.get(f"{prefix}/v1/audio/models") as reply:
                    assert await reply.json() == {"models": [{"id": TINY}]}
                async with client.get(f"{prefix}/v1/audio/voices") as reply:
                    voices = (await reply.json())["voices"]
                assert voices == [{"id": name, "name": name} for name in ("default", "anna", "nova")]
                for voice in voices:
                    assert (await say(client, voice=voice["id"]))[0].status == 200
                async with client.get(f"{prefix}/v1/test") as reply:
                    assert await reply.json() == {"status": "ok"}
                fields = {"model": "tts-1", "input": "hello", "voice": "alloy"}
                assert (await post(client, f"{prefix}{SPEECH}", **fields))[0].status == 200

    run(test)


def test_probes_do_not_take_this_server_for_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            async with client.get("/v1/readyz") as reply:
                assert reply.status == 404
            async with client.get("/health") as reply:
                assert (await reply.text()).strip() != "OK"

    run(test)


def test_a_voice_is_added_whole_or_refused_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            status, body = await add_voice(client, "anna")
            assert (status, body["error"]["param"]) == (400, "ref_text")
            status, body = await add_voice(client, "../anna", ref_text="x")
            assert (status, body["error"]["param"]) == (400, "name")
            assert (await add_voice(client, "anna", ref_text="x"))[0] == 200
            status, body = await add_voice(client, "anna", ref_text="x")
            assert (status, body["error"]["param"]) == (409, "name")
            form = aiohttp.FormData({"name": "bert", "ref_text": "x"})
            form.add_field("audio_sample", b"no sound", filename="upload")
            async with client.post("/v1/audio/voices", data=form) as reply:
                assert (reply.status, (await reply.json())["error"]["param"]) == (400, "audio_sample")

    run(test)


def test_home_assistant_s_instructions_and_unknown_fields_do_no_harm(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            plain = await prompt_of(client)
            for instructions in ("None", "", None, "Speak slowly."):
                assert await prompt_of(client, instructions=instructions) == plain
            reply, _ = await say(client, speaker="vivian", task_type="Base", backend="x")
            assert reply.headers["X-Ignored-Fields"] == "speaker, task_type, backend"

    run(test)


@pytest.mark.parametrize("more", [{}, {"stream_format": "sse"}])
def test_errors_have_a_status_before_the_sound_and_break_the_reply_after_it(tmp_path: Path, more: dict) -> None:
    lost = Failure(503, "worker_lost", "the worker was lost", retry_after=1)

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = fail(0, lost)
            reply, body = await say(client, **more)
            assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
            assert reply.headers["Content-Type"] == "application/json"
            assert msgspec.json.decode(body)["error"]["type"] == "server_error"
            client.engine.failure = Failure(400, "context_length_exceeded", "too long")
            reply, body = await say(client, **more)
            assert msgspec.json.decode(body)["error"]["param"] == "input"
            client.engine.failure, client.engine.plan = None, fail(8, lost)
            with pytest.raises(aiohttp.ClientPayloadError):
                await say(client, **more)

    run(test)


def test_fish_s_own_fields_keep_their_names_and_openai_s_go_before() -> None:
    body = translate({"text": "fish", "input": "openai", "prosody": {"volume": 3}, "speed": 2, "latency": "low"})
    assert body.values == {"text": "openai", "prosody": {"volume": 3, "speed": 2}, "latency": "low"}
