"""Frameworks for voice assistants: LiveKit's plugins, pipecat's services, and wyoming-openai for Home Assistant."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.conftest import KEY, Scenario
from tests.clients.sound import MODEL_RATE, PCM_BYTES, SECONDS, assert_pcm, assert_sound, assert_streamed
from tests.integration.group import Group

pytestmark = pytest.mark.slow

AGENT_RATE = 24000  # Hz, what agents ask for


def _assert_frames(heard: dict[str, Any], rate: int, seconds: float, padding: float = 0.0) -> None:
    """Decoded sound at one rate; ``padding``: seconds that encoder, decoder or client add."""
    assert heard["rates"] == [rate]
    length = len(heard["sound"]) / PCM_BYTES / rate
    assert seconds - 0.021 <= length <= seconds + padding + 0.001, "an Opus frame is lost in LiveKit's decoder"


@pytest.mark.parametrize(
    ("format", "rate", "padding"), [("wav", 24000, 0.0), ("pcm", 24000, 0.0), ("mp3", 32000, 0.1), ("opus", 48000, 0.0)]
)
def test_livekit_has_its_second_turn_on_the_same_socket(
    livekit: Scenario, voice: str, format: str, rate: int, padding: float
) -> None:
    result = livekit("turns", format=format, voice=voice)
    assert result["sockets"] == 1
    for turn in result["turns"]:
        assert turn["pieces"] > 3
        _assert_frames(turn, rate, 2 * SECONDS, padding)


def test_livekit_reads_sound_in_one_reply_as_it_comes(livekit: Scenario) -> None:
    heard = livekit("synthesize")
    assert_streamed(heard)
    _assert_frames(heard, AGENT_RATE, SECONDS)


@pytest.mark.parametrize("options", [{}, {"model": "tts-1", "response_format": "pcm"}])
def test_livekit_reads_events_and_sound_at_the_other_door(livekit: Scenario, options: dict[str, str]) -> None:
    heard = livekit("openai_synthesize", **options)
    assert_streamed(heard)
    _assert_frames(heard, AGENT_RATE, SECONDS, padding=0.15)


def test_livekit_is_told_what_was_wrong(livekit: Scenario) -> None:
    result = livekit("failures")
    assert {failure["type"] for failure in result.values()} == {"APIStatusError"}
    assert result["fish"]["status_code"] == result["openai"]["status_code"] == 400
    assert "nobody" in result["fish live"]["text"]
    assert "nobody" in result["openai"]["text"]


@pytest.mark.parametrize("rate", [16000, 24000])
def test_pipecat_gets_frames_of_the_rate_it_announces(pipecat: Scenario, voice: str, rate: int) -> None:
    for turn in pipecat("fish", rate=rate, voice=voice)["turns"]:
        assert turn["errors"] == []
        assert turn["odd"] == 0
        assert turn["rates"] == [rate]
        assert_streamed(turn)
        assert_pcm(turn["sound"], rate)


def test_pipecat_interrupts_and_speaks_on(pipecat: Scenario, server: Group) -> None:
    before = server.metric("shoal_requests_total", outcome="cancelled")
    broken_off, spoken = pipecat("fish", rate=AGENT_RATE, interrupt=True)["turns"]
    assert broken_off["errors"] == spoken["errors"] == []
    assert 0 < len(broken_off["sound"]) < len(spoken["sound"])
    assert_pcm(spoken["sound"], AGENT_RATE)
    assert server.metric("shoal_requests_total", outcome="cancelled") == before + 1


def test_pipecat_is_told_of_an_error(pipecat: Scenario) -> None:
    (turn,) = pipecat("fish", rate=AGENT_RATE, voice="nobody", texts=["Hello."])["turns"]
    assert turn["sound"] == b""
    assert "Fish Audio server error during synthesis" in turn["errors"]


def test_pipecat_speaks_through_the_other_door(pipecat: Scenario) -> None:
    for turn in pipecat("openai")["turns"]:
        assert turn["errors"] == []
        assert turn["rates"] == [AGENT_RATE]
        assert_pcm(turn["sound"], AGENT_RATE)


@pytest.mark.parametrize("key", [KEY, ""])
def test_wyoming_openai_takes_it_for_a_server_that_lists_its_voices(
    wyoming: Scenario, public_voice: str, key: str
) -> None:
    result = wyoming("detect", key=key)
    assert result["backend"] == "KOKORO_FASTAPI"
    assert {"default", public_voice} <= set(result["voices"])  # it lists them without its key


def test_wyoming_openai_streams(wyoming: Scenario, voice: str) -> None:
    heard = wyoming("speak", voice=voice)
    assert_streamed(heard)
    assert_sound(heard["sound"], MODEL_RATE)
