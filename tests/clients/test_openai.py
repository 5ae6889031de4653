"""OpenAI's own SDK."""

from __future__ import annotations

import pytest

from tests.clients.conftest import NARROW_KEY, Scenario
from tests.clients.sound import MODEL_RATE, SECONDS, assert_pcm, assert_sound, assert_streamed
from tests.integration.group import Group

pytestmark = pytest.mark.slow

OPENAI_RATE = 24000  # Hz, of pcm at OpenAI's doors
PADDING = {"mp3": 0.16, "aac": 0.2}  # seconds, of encoder and decoder
FORMATS = ["mp3", "wav", "opus", "aac", "flac"]


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_comes_whole(openai: Scenario, format: str) -> None:
    heard = openai("create", response_format=format)
    assert_sound(heard["sound"], 48000 if format == "opus" else MODEL_RATE, padding=PADDING.get(format, 0.0))


def test_without_a_format_it_is_mp3(openai: Scenario) -> None:
    heard = openai("create")
    assert heard["media_type"] == "audio/mpeg"
    assert_sound(heard["sound"], MODEL_RATE, padding=PADDING["mp3"])


def test_pcm_has_the_rate_that_clients_assume(openai: Scenario) -> None:
    assert_pcm(openai("create", response_format="pcm")["sound"], OPENAI_RATE)
    assert_pcm(openai("create", response_format="pcm", prefix="/compat/v1")["sound"], OPENAI_RATE)


@pytest.mark.parametrize("format", [*FORMATS, "pcm"])
def test_every_format_streams(openai: Scenario, format: str) -> None:
    heard = openai("streamed", response_format=format)
    assert_streamed(heard)
    assert heard["request_id"]


def test_the_asynchronous_client_streams(openai: Scenario) -> None:
    heard = openai("streamed_async", response_format="pcm")
    assert_streamed(heard)
    assert_pcm(heard["sound"], OPENAI_RATE)


def test_speed_changes_the_length(openai: Scenario) -> None:
    assert_pcm(openai("create", response_format="pcm", speed=2.0)["sound"], OPENAI_RATE, SECONDS / 2)


def test_events_carry_the_sound_and_end_with_the_use(openai: Scenario) -> None:
    heard = openai("events", response_format="pcm")
    assert_streamed(heard)
    assert_pcm(heard["sound"], OPENAI_RATE)
    assert heard["end"]["type"] == "speech.audio.done"
    use = heard["end"]["usage"]
    assert use["total_tokens"] == use["input_tokens"] + use["output_tokens"]


def test_models_are_listed(openai: Scenario) -> None:
    result = openai("lists")
    assert result["models"] == [result["model"]]


def test_a_voice_can_be_made_and_spoken_with(openai: Scenario, recording: str) -> None:
    result = openai("voices", recording=recording)
    assert result["name"] == "clara"
    assert_sound(result["spoken"]["sound"], MODEL_RATE, padding=PADDING["mp3"])


def test_failures_have_their_type_and_our_message(openai: Scenario) -> None:
    result = openai("failures")
    assert result["stranger"]["type"] == "AuthenticationError"
    assert result["stranger"]["code"] == "invalid_api_key"
    assert (result["no such voice"]["type"], result["no such voice"]["param"]) == ("BadRequestError", "voice")
    assert "nobody" in result["no such voice"]["message"]
    assert (result["no such model"]["type"], result["no such model"]["code"]) == ("NotFoundError", "model_not_found")
    assert result["no such format"]["param"] == "response_format"
    assert result["too fast"]["param"] == "speed"
    assert result["no text"]["param"] == "input"


def test_what_is_refused_for_a_limit_is_served_when_it_is_sent_again(openai: Scenario, server: Group) -> None:
    result = openai("one_too_many", key=NARROW_KEY)
    assert (result["refused"]["type"], result["refused"]["status_code"]) == ("RateLimitError", 429)
    assert_sound(result["served"]["sound"], MODEL_RATE, padding=PADDING["mp3"])
    assert server.metric("shoal_key_refusals_total", key="narrow") >= 2
