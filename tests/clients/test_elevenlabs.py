"""ElevenLabs' own SDK."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Scenario
from tests.clients.sound import SECONDS, assert_pcm, assert_sound, assert_streamed

pytestmark = pytest.mark.slow

MP3_PADDING = 0.16  # seconds: what the decoder puts before the sound, and up to a frame after it


def test_convert_gives_the_format_asked_for(elevenlabs: Scenario) -> None:
    assert_sound(elevenlabs("convert")["sound"], 44100, padding=MP3_PADDING)
    assert_sound(elevenlabs("convert", output_format="wav_24000")["sound"], 24000)
    assert_pcm(elevenlabs("convert", output_format="pcm_16000")["sound"], 16000)


def test_it_streams(elevenlabs: Scenario) -> None:
    for scenario in ("streamed", "streamed_async"):
        heard = elevenlabs(scenario, output_format="pcm_24000")
        assert_streamed(heard)
        assert_pcm(heard["sound"], 24000)


@pytest.mark.parametrize("law", ["ulaw_8000", "alaw_8000"])
def test_it_streams_into_telephones(elevenlabs: Scenario, law: str) -> None:
    heard = elevenlabs("streamed", output_format=law)
    assert_streamed(heard)
    assert len(heard["sound"]) == round(SECONDS * 8_000)


def test_a_voice_is_listed_and_spoken_with(elevenlabs: Scenario, voice: str) -> None:
    assert voice in elevenlabs("voices")
    assert_pcm(elevenlabs("convert", voice_id=voice, output_format="pcm_16000")["sound"], 16000)


def test_failures_are_its_own_errors(elevenlabs: Scenario) -> None:
    result = elevenlabs("failures")
    assert {name: error["status_code"] for name, error in result.items()} == {
        "stranger": 401,
        "no such voice": 400,
        "no such format": 400,
        "too fast": 400,
    }
    assert "nobody" in result["no such voice"]["text"]
    assert "output_format" in result["no such format"]["text"]
