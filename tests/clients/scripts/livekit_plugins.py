"""LiveKit's plugins for Fish Audio and OpenAI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import aiohttp
from livekit.agents import NOT_GIVEN, tts
from livekit.plugins import fishaudio, openai
from scenarios import Heard, failure_async, run


async def heard(frames: AsyncIterable[tts.SynthesizedAudio]) -> dict[str, Any]:
    sound, rates = Heard(), set()
    async for audio in frames:
        sound.add(bytes(audio.frame.data))
        rates.add(audio.frame.sample_rate)
    return {"rates": sorted(rates), **sound.told()}


class Connections:
    """A session that counts the WebSockets it opens."""

    def __init__(self) -> None:
        self.count = 0
        counter = aiohttp.TraceConfig()
        counter.on_request_start.append(self._add)
        self.session = aiohttp.ClientSession(trace_configs=[counter])

    async def _add(self, *_: Any) -> None:
        self.count += 1


def turns(base: str, key: str, format: str, voice: str | None = None) -> dict[str, Any]:
    """Two turns of two sentences each."""

    async def turn(speaker: fishaudio.TTS, words: list[str]) -> dict[str, Any]:
        async with speaker.stream() as stream:
            for word in words:
                stream.push_text(f"{word} ")
                await asyncio.sleep(0.02)
            stream.end_input()
            return await heard(stream)

    async def talk() -> dict[str, Any]:
        connections = Connections()
        speaker = fishaudio.TTS(
            api_key=key,
            base_url=base,
            voice_id=voice or NOT_GIVEN,
            output_format=format,
            http_session=connections.session,
        )
        first = await turn(speaker, "This is one sentence. And here is another.".split())
        second = await turn(speaker, "A second turn begins. It ends as well.".split())
        await speaker.aclose()
        await connections.session.close()
        return {"turns": [first, second], "sockets": connections.count}

    return asyncio.run(talk())


def synthesize(base: str, key: str, **options: Any) -> dict[str, Any]:
    async def speak() -> dict[str, Any]:
        async with aiohttp.ClientSession() as session:
            speaker = fishaudio.TTS(api_key=key, base_url=base, voice_id=NOT_GIVEN, http_session=session, **options)
            return await heard(speaker.synthesize("Hello there."))

    return asyncio.run(speak())


def openai_synthesize(base: str, key: str, **options: Any) -> dict[str, Any]:
    async def speak() -> dict[str, Any]:
        speaker = openai.TTS(api_key=key, base_url=f"{base}/v1", **options)
        return await heard(speaker.synthesize("Hello there."))

    return asyncio.run(speak())


def failures(base: str, key: str) -> dict[str, Any]:
    no_retry = tts.tts.APIConnectOptions(max_retry=0)

    async def words() -> AsyncIterator[str]:
        yield "Hello."

    async def try_all() -> dict[str, Any]:
        async with aiohttp.ClientSession() as session:
            fish = fishaudio.TTS(api_key=key, base_url=base, voice_id="nobody", http_session=session)
            stream = fish.stream(conn_options=no_retry)
            stream.push_text("Hello.")
            stream.end_input()
            other = openai.TTS(api_key=key, base_url=f"{base}/v1", voice="nobody")
            return {
                "fish": await failure_async(heard(fish.synthesize("Hello.", conn_options=no_retry))),
                "fish live": await failure_async(heard(stream)),
                "openai": await failure_async(heard(other.synthesize("Hello.", conn_options=no_retry))),
            }

    return asyncio.run(try_all())


if __name__ == "__main__":
    run(turns, synthesize, openai_synthesize, failures)
