"""Fish Audio's SDK for Node."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Scenario
from tests.clients.sound import MODEL_RATE, SECONDS, assert_pcm, assert_sound, assert_streamed

pytestmark = pytest.mark.slow

MP3_PADDING = 0.16


def test_sound_streams_and_is_mp3_unless_asked_otherwise(fish_npm: Scenario) -> None:
    assert_sound(fish_npm("convert")["sound"], MODEL_RATE, padding=MP3_PADDING)
    heard = fish_npm("convert", fields={"format": "pcm", "sample_rate": 24000})
    assert_streamed(heard)
    assert_pcm(heard["sound"], 24000)


def test_a_recording_in_the_request_is_heard(fish_npm: Scenario, recording: str) -> None:
    assert_sound(fish_npm("cloned", recording=recording)["sound"], MODEL_RATE)


@pytest.mark.parametrize("fields", [{"format": "wav"}, {}])
def test_sentences_are_spoken_as_they_are_written_and_then_the_socket_is_closed(
    fish_npm: Scenario, fields: dict[str, str]
) -> None:
    assert_sound(fish_npm("live", fields=fields)["sound"], MODEL_RATE, 2 * SECONDS, padding=MP3_PADDING)


def test_voices_are_managed(fish_npm: Scenario, recording: str) -> None:
    result = fish_npm("voices", recording=recording)
    assert result["created"] == ["Dora", "trained"]
    assert result["found"] == "Dora of Hull"
    assert result["listed"] == ["Dora of Hull"]
    assert_sound(result["spoken"]["sound"], MODEL_RATE)
    assert result["after"]["status"] == 404


def test_the_account_can_be_asked_for(fish_npm: Scenario) -> None:
    assert set(fish_npm("account")) == {"credit", "balance"}


def test_failures_tell_our_message(fish_npm: Scenario) -> None:
    result = fish_npm("failures")
    assert result["stranger"]["status"] == 401
    assert result["no such voice"]["status"] == 400
    assert "nobody" in result["no such voice"]["message"]
    assert "nobody" in result["no such voice live"]["message"]
