"""``elevenlabs``, ElevenLabs' own client."""

from __future__ import annotations

import asyncio
from typing import Any

from elevenlabs import AsyncElevenLabs, ElevenLabs, VoiceSettings
from scenarios import failure, heard, heard_async, run

TEXT = "Hello there."


def convert(base: str, key: str, **fields: Any) -> dict[str, Any]:
    client = ElevenLabs(base_url=base, api_key=key)
    settings = VoiceSettings(stability=0.5, similarity_boost=0.75, style=0.0, use_speaker_boost=True)
    wanted = {"voice_id": "alloy", "text": TEXT, "model_id": "eleven_multilingual_v2", "voice_settings": settings}
    return heard(client.text_to_speech.convert(**wanted | fields))


def streamed(base: str, key: str, **fields: Any) -> dict[str, Any]:
    client = ElevenLabs(base_url=base, api_key=key)
    return heard(client.text_to_speech.stream(**{"voice_id": "alloy", "text": TEXT} | fields))


def streamed_async(base: str, key: str, **fields: Any) -> dict[str, Any]:
    async def speak() -> dict[str, Any]:
        client = AsyncElevenLabs(base_url=base, api_key=key)
        return await heard_async(client.text_to_speech.stream(**{"voice_id": "alloy", "text": TEXT} | fields))

    return asyncio.run(speak())


def voices(base: str, key: str) -> list[str]:
    return [voice.voice_id for voice in ElevenLabs(base_url=base, api_key=key).voices.get_all().voices]


def failures(base: str, key: str) -> dict[str, Any]:
    def speak(key: str = key, **fields: Any) -> dict[str, Any]:
        return failure(lambda: convert(base, key, **fields))

    return {
        "stranger": speak(key="not a key"),
        "no such voice": speak(voice_id="nobody"),
        "no such format": speak(output_format="midi"),
        "too fast": speak(voice_settings=VoiceSettings(speed=9)),
    }


if __name__ == "__main__":
    run(convert, streamed, streamed_async, voices, failures)
