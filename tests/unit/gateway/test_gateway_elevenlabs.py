"""ElevenLabs' API: what its clients send is understood, in each of its formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from gateway_fakes import Client, post, run, serving, speak
from gateway_sound import decode, recording

from gateway.schema.elevenlabs_fields import OUTPUT_FORMATS, translate

SPEECH = "/v1/text-to-speech/default"


async def say(
    client: Client, path: str = SPEECH, output_format: str = "", **fields: Any
) -> tuple[aiohttp.ClientResponse, bytes]:
    query = f"?output_format={output_format}" if output_format else ""
    return await post(client, path + query, **({"text": "hello", "model_id": "eleven_multilingual_v2"} | fields))


@pytest.mark.parametrize("path", [SPEECH, f"{SPEECH}/stream"])
def test_every_output_format_is_what_its_name_says(tmp_path: Path, path: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 2, 7)
            for name, output in OUTPUT_FORMATS.items():
                reply, body = await say(client, path, name)
                assert reply.status == 200, (name, body)
                assert int(reply.headers["X-Sample-Rate"]) == output.rate
                assert ("Content-Length" in reply.headers) == (path == SPEECH)
                if output.format in ("mp3", "opus", "wav"):
                    assert decode(body).rate == output.rate
            plain, _ = await say(client, path)
            assert (plain.headers["Content-Type"], plain.headers["X-Sample-Rate"]) == ("audio/mpeg", "44100")

    run(test)


def test_the_bit_rate_is_the_one_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(40)
            sizes = {bits: len((await say(client, output_format=f"mp3_44100_{bits}"))[1]) for bits in (32, 64, 96, 192)}
            for bits, size in sizes.items():
                assert size / sizes[32] == pytest.approx(bits / 32, rel=0.02)

    run(test)


def test_it_is_the_same_speech_as_at_the_other_doors(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            _, expected = await post(client, text="hello", format="pcm", sample_rate=16_000, seed=7, temperature=0.25)
            for path in (SPEECH, f"{SPEECH}/stream", "/v1/text-to-speech/alloy"):
                settings = {"stability": 0.75, "similarity_boost": 0.8, "style": None, "use_speaker_boost": True}
                _, body = await say(client, path, "pcm_16000", seed=7, voice_settings=settings)
                assert body == expected
            faster = (await say(client, output_format="pcm_16000", voice_settings={"speed": 1.2}))[1]
            assert len(faster) / len(expected) == pytest.approx(1 / 1.2, rel=0.01)

    run(test)


def test_fields_mean_what_they_mean_there() -> None:
    values, output = translate(
        {"text": "Hi.", "voice_settings": {"stability": 0.3}, "apply_text_normalization": "off", "odd": 1},
        "mp3_44100_128",
        True,
    )
    assert values["temperature"] == pytest.approx(0.7)
    assert (values["normalize"], values["streaming"], values["odd"]) == (False, True, 1)
    assert (output.format, output.rate, output.kilobits) == ("mp3", 44_100, 128)
    assert "temperature" not in translate({"text": "Hi."}, "pcm_8000", False).values


@pytest.mark.parametrize(
    ("fields", "output_format", "status", "param"),
    [
        ({}, "mp3_44100_100", 400, "output_format"),
        ({}, "pcm", 400, "output_format"),
        ({}, "%20", 400, "output_format"),
        ({}, "&output_format=", 400, "output_format"),
        ({}, "pcm_8000&output_format=pcm_16000", 400, "output_format"),
        ({"text": " "}, "", 400, "text"),
        ({"text": 1}, "", 400, "text"),
        ({"seed": -1}, "", 400, "seed"),
        ({"voice_settings": {"stability": 2}}, "", 400, "voice_settings.stability"),
        ({"voice_settings": {"speed": 2}}, "", 400, "voice_settings.speed"),
        ({"voice_settings": []}, "", 400, "voice_settings"),
        ({"apply_text_normalization": "never"}, "", 400, "apply_text_normalization"),
    ],
)
def test_what_can_t_be_accepted_is_named(
    tmp_path: Path, fields: dict[str, Any], output_format: str, status: int, param: str
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for path in (SPEECH, f"{SPEECH}/stream"):
                reply, body = await say(client, path, output_format, **fields)
                assert (reply.status, msgspec.json.decode(body)["error"]["param"]) == (status, param)
            missing, body = await post(client, SPEECH, model_id="eleven_v3")
            assert (missing.status, msgspec.json.decode(body)["error"]["param"]) == (400, "text")

    run(test)


def test_a_voice_that_is_not_there_is_an_error_and_those_there_are_listed(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reply, body = await say(client, "/v1/text-to-speech/nobody/stream")
            error = msgspec.json.decode(body)["error"]
            assert (reply.status, error["code"], error["param"]) == (400, "voice_not_found", "voice_id")
            form = aiohttp.FormData({"id": "anna", "text": "Hi."})
            form.add_field("audio", recording(), filename="anna.wav")
            async with client.post("/v1/references/add", data=form) as added:
                assert added.status == 200
            async with client.get("/v1/voices") as listed:
                voices = msgspec.json.decode(await listed.read())["voices"]
            assert {"voice_id": "anna", "name": "anna", "category": "cloned"} in voices
            assert (await say(client, "/v1/text-to-speech/anna"))[0].status == 200

    run(test)


def test_the_key_comes_in_their_header(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "anna"\nkey = "secret"\n')

    async def test() -> None:
        async with serving(tmp_path, api_keys_file=str(keys)) as client:
            for key, status in (("secret", 200), ("other", 401), ("", 401)):
                async with client.post(SPEECH, json={"text": "hello"}, headers={"xi-api-key": key}) as reply:
                    assert reply.status == status

    run(test)
