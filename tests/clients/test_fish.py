"""Fish Audio's own SDKs."""

from __future__ import annotations

import pytest

from tests.clients.conftest import NARROW_KEY, Scenario
from tests.clients.sound import MODEL_RATE, SECONDS, assert_pcm, assert_sound, assert_streamed

pytestmark = pytest.mark.slow

FISH_RATE = 44100  # Hz, of pcm at Fish's doors
MP3_PADDING = 0.16  # seconds: what the decoder puts before the sound, and up to a frame after it


def test_convert_gives_mp3_unless_it_is_asked_for_something_else(fish: Scenario) -> None:
    assert_sound(fish("convert")["sound"], MODEL_RATE, padding=MP3_PADDING)
    assert_sound(fish("convert", format="wav")["sound"], MODEL_RATE)
    assert_sound(fish("convert", format="opus")["sound"], 48000)
    assert_pcm(fish("convert", format="pcm")["sound"], FISH_RATE)


def test_configurations_are_obeyed(fish: Scenario) -> None:
    assert_pcm(fish("configured", format="pcm", sample_rate=8000)["sound"], 8000)
    faster = {"speed": 1.25, "volume": -6}
    assert_sound(fish("configured", format="wav", prosody=faster)["sound"], MODEL_RATE, SECONDS / 1.25)
    assert_sound(fish("configured", mp3_bitrate=64, sample_rate=44100)["sound"], 44100, padding=MP3_PADDING)


def test_the_asynchronous_client_converts(fish: Scenario) -> None:
    assert_sound(fish("convert_async")["sound"], MODEL_RATE)


def test_the_former_client_streams(fish_legacy: Scenario) -> None:
    heard = fish_legacy("tts", format="pcm", sample_rate=32000)
    assert_streamed(heard)
    assert_pcm(heard["sound"], 32000)
    assert_sound(fish_legacy("tts")["sound"], MODEL_RATE, padding=MP3_PADDING)
    assert_sound(fish_legacy("tts_async")["sound"], MODEL_RATE)


def test_a_recording_in_the_request_is_heard(fish: Scenario, fish_legacy: Scenario, recording: str) -> None:
    for client in (fish, fish_legacy):
        assert_sound(client("cloned", recording=recording)["sound"], MODEL_RATE)


def test_what_is_flushed_is_spoken_before_the_rest_is_written(fish: Scenario) -> None:
    heard = fish("live")
    assert heard["answered"]
    assert_pcm(heard["sound"], FISH_RATE, 2 * SECONDS)


@pytest.mark.parametrize(("format", "rate"), [("wav", MODEL_RATE), ("mp3", MODEL_RATE), ("opus", 48000)])
def test_both_sentences_are_one_file(fish: Scenario, format: str, rate: int) -> None:
    assert_sound(fish("live", format=format)["sound"], rate, 2 * SECONDS, padding=MP3_PADDING)


def test_sentences_are_spoken_as_they_are_written(fish_legacy: Scenario) -> None:
    heard = fish_legacy("live")
    assert heard["answered"]
    assert_pcm(heard["sound"], 16000, 2 * SECONDS)


def test_words_become_sentences(fish: Scenario, fish_legacy: Scenario) -> None:
    assert_sound(fish("live_async")["sound"], MODEL_RATE, padding=MP3_PADDING)
    assert_sound(fish_legacy("live_async")["sound"], MODEL_RATE)


def test_pings_are_answered_in_a_pause(fish: Scenario) -> None:
    assert_pcm(fish("live_after_a_pause", pause=4.0)["sound"], FISH_RATE)


def test_a_voice_is_created_found_changed_spoken_with_and_deleted(fish: Scenario, recording: str) -> None:
    result = fish("voices", recording=recording)
    assert result["created"] == ["Anna", "trained", ["calm"]]
    assert result["found"]
    assert result["listed"] == [["Anna of Hull", ["calm", "low"]]]
    assert_sound(result["spoken"]["sound"], MODEL_RATE)
    assert (result["after"]["type"], result["after"]["status"]) == ("NotFoundError", 404)


def test_the_former_client_manages_voices(fish_legacy: Scenario, recording: str) -> None:
    result = fish_legacy("voices", recording=recording)
    assert result["created"] == ["Cora", "trained"]
    assert result["listed"] == [["Cora", "Of the tests."]]
    assert_sound(result["spoken"]["sound"], MODEL_RATE)
    assert result["after"]["status"] == 404


def test_a_voice_without_what_is_said_is_refused_with_the_reason(fish: Scenario, recording: str) -> None:
    refused = fish("without_a_text", recording=recording)
    assert refused["status"] == 400
    assert "texts" in refused["message"]


def test_the_account_can_be_asked_for(fish: Scenario, fish_legacy: Scenario) -> None:
    assert set(fish("account")) == set(fish_legacy("account")) == {"credit", "balance"}


def test_failures_have_their_type_and_our_message(fish: Scenario) -> None:
    result = fish("failures")
    assert result["stranger"]["type"] == "AuthenticationError"
    assert "key" in result["stranger"]["message"]
    assert result["stranger live"]["type"] == "WebSocketUpgradeError"
    assert result["no such voice"]["status"] == 400
    assert "nobody" in result["no such voice"]["message"]
    assert result["no such voice live"]["type"] == "WebSocketError"
    assert result["no text"]["status"] == 400
    assert "text" in result["no text"]["message"]
    assert result["recognition"]["status"] == 501


def test_the_former_client_sees_the_status(fish_legacy: Scenario) -> None:
    result = fish_legacy("failures")
    assert (result["stranger"]["type"], result["stranger"]["status"]) == ("HttpCodeErr", 401)
    assert result["no such voice"]["status"] == 400
    assert result["no such voice live"]["type"] == "WebSocketErr"
    assert "key" in result["stranger's models"]["message"]


def test_one_request_too_many_is_told_as_such(fish: Scenario) -> None:
    refused = fish("one_too_many", key=NARROW_KEY)
    assert (refused["type"], refused["status"]) == ("RateLimitError", 429)
