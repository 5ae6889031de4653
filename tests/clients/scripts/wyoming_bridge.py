"""What wyoming-openai, Home Assistant's way to OpenAI-compatible servers, finds out about one."""

from __future__ import annotations

import asyncio
from typing import Any

from scenarios import Heard, run
from wyoming_openai.compatibility import CustomAsyncOpenAI


def detect(base: str, key: str) -> dict[str, Any]:
    """What server it takes this one for, and what voices it has."""

    async def detect() -> dict[str, Any]:
        client = await CustomAsyncOpenAI.create_autodetected_factory()(api_key=key, base_url=f"{base}/v1")
        voices = await client.list_supported_voices(["tts-1"], [], ["en"])
        return {"backend": client.backend.name, "voices": [voice.name for voice in voices]}

    return asyncio.run(detect())


def speak(base: str, key: str, voice: str) -> dict[str, Any]:
    async def speak() -> dict[str, Any]:
        client, sound = CustomAsyncOpenAI(api_key=key, base_url=f"{base}/v1"), Heard()
        fields = {"model": "tts-1", "input": "Hello there.", "voice": voice, "response_format": "wav"}
        async with client.audio.speech.with_streaming_response.create(**fields) as reply:
            async for piece in reply.iter_bytes(2048):
                sound.add(piece)
        return sound.told()

    return asyncio.run(speak())


if __name__ == "__main__":
    run(detect, speak)
