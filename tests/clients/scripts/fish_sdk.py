"""``fishaudio`` of fish-audio-sdk."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from fishaudio import AsyncFishAudio, FishAudio
from fishaudio.core import WebSocketOptions
from fishaudio.types import FlushEvent, ReferenceAudio, TTSConfig
from scenarios import Heard, failure, heard, heard_async, run

PATIENCE = 20.0  # seconds to wait for sound


def convert(base: str, key: str, text: str = "Hello there.", **options: Any) -> dict[str, Any]:
    client = FishAudio(api_key=key, base_url=base)
    return heard([client.tts.convert(text=text, **options)])


def configured(base: str, key: str, **config: Any) -> dict[str, Any]:
    client = FishAudio(api_key=key, base_url=base)
    return heard(client.tts.stream(text="Hello there.", config=TTSConfig(**config)))


def convert_async(base: str, key: str) -> dict[str, Any]:
    async def convert() -> bytes:
        async with AsyncFishAudio(api_key=key, base_url=base) as client:
            return await client.tts.convert(text="Hello there.", format="wav")

    return heard([asyncio.run(convert())])


def cloned(base: str, key: str, recording: str) -> dict[str, Any]:
    reference = ReferenceAudio(audio=Path(recording).read_bytes(), text="What is said.")
    client = FishAudio(api_key=key, base_url=base)
    return heard([client.tts.convert(text="Hello there.", format="wav", references=[reference])])


def live(base: str, key: str, format: str = "pcm") -> dict[str, Any]:
    """Two sentences, and the second is not written before the first is heard."""
    client, sound, was_heard = FishAudio(api_key=key, base_url=base), Heard(), threading.Event()
    answered = []

    def text() -> Iterator[str | FlushEvent]:
        yield from ("The first ", "sentence. ", FlushEvent())
        answered.append(was_heard.wait(PATIENCE))
        yield "The second sentence."

    for piece in client.tts.stream_websocket(text(), format=format):
        sound.add(piece)
        was_heard.set()
    return {"answered": answered[0], **sound.told()}


def live_async(base: str, key: str) -> dict[str, Any]:
    async def text() -> AsyncIterator[str]:
        for word in "Words that come one by one.".split():
            yield f"{word} "

    async def speak() -> dict[str, Any]:
        async with AsyncFishAudio(api_key=key, base_url=base) as client:
            return await heard_async(client.tts.stream_websocket(text(), format="mp3"))

    return asyncio.run(speak())


def live_after_a_pause(base: str, key: str, pause: float) -> dict[str, Any]:
    """With pings so frequent that several go unanswered in a pause if any does."""
    client = FishAudio(api_key=key, base_url=base)
    pings = WebSocketOptions(keepalive_ping_interval_seconds=pause / 6, keepalive_ping_timeout_seconds=pause / 6)

    def text() -> Iterator[str]:
        yield "A pause "
        time.sleep(pause)
        yield "is no end."

    return heard(client.tts.stream_websocket(text(), format="pcm", ws_options=pings))


def voices(base: str, key: str, recording: str) -> dict[str, Any]:
    """A voice from its creation to its end."""
    client = FishAudio(api_key=key, base_url=base)
    samples = [Path(recording).read_bytes()]
    voice = client.voices.create(title="Anna", voices=samples, texts=["What is said."], tags=["calm"])
    found = client.voices.get(voice.id)
    client.voices.update(voice.id, title="Anna of Hull", tags=["calm", "low"])
    listed = client.voices.list(page_size=100)
    spoken = heard([client.tts.convert(text="Hello there.", reference_id=voice.id, format="wav")])
    client.voices.delete(voice.id)
    return {
        "created": [voice.title, voice.state, voice.tags],
        "found": found.id == voice.id,
        "listed": [[item.title, item.tags] for item in listed.items if item.id == voice.id],
        "spoken": spoken,
        "after": failure(lambda: client.voices.get(voice.id)),
    }


def without_a_text(base: str, key: str, recording: str) -> dict[str, Any]:
    client, samples = FishAudio(api_key=key, base_url=base), [Path(recording).read_bytes()]
    return failure(lambda: client.voices.create(title="Anna", voices=samples))


def account(base: str, key: str) -> dict[str, Any]:
    account = FishAudio(api_key=key, base_url=base).account
    return {"credit": float(account.get_credits().credit), "balance": account.get_package().balance}


def failures(base: str, key: str) -> dict[str, Any]:
    client, stranger = FishAudio(api_key=key, base_url=base), FishAudio(api_key="not a key", base_url=base)
    return {
        "stranger": failure(lambda: stranger.tts.convert(text="Hello.")),
        "stranger live": failure(lambda: list(stranger.tts.stream_websocket(iter(["Hello."])))),
        "no such voice": failure(lambda: client.tts.convert(text="Hello.", reference_id="nobody")),
        "no such voice live": failure(
            lambda: list(client.tts.stream_websocket(iter(["Hello."]), reference_id="nobody"))
        ),
        "no text": failure(lambda: client.tts.convert(text=" ")),
        "recognition": failure(lambda: client.asr.transcribe(audio=b"sound")),
    }


def one_too_many(base: str, key: str) -> dict[str, Any]:
    """A second request with a key for one at a time."""
    client = FishAudio(api_key=key, base_url=base)
    started, done = threading.Event(), threading.Event()

    def text() -> Iterator[str]:
        yield "A sentence. "
        started.set()
        done.wait(PATIENCE)

    first = threading.Thread(target=lambda: list(client.tts.stream_websocket(text())))
    first.start()
    started.wait(PATIENCE)
    time.sleep(0.5)
    refused = failure(lambda: client.tts.convert(text="Hello."))
    done.set()
    first.join()
    return refused


if __name__ == "__main__":
    run(
        convert,
        configured,
        convert_async,
        cloned,
        live,
        live_async,
        live_after_a_pause,
        voices,
        without_a_text,
        account,
        failures,
        one_too_many,
    )
