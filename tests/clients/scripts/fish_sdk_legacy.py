"""``fish_audio_sdk``: the former API, which is still a part of fish-audio-sdk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from fish_audio_sdk import AsyncWebSocketSession, ReferenceAudio, Session, TTSRequest, WebSocketSession
from scenarios import Heard, failure, heard, heard_async, run

PATIENCE = 20.0  # seconds to wait for sound


def tts(base: str, key: str, **fields: Any) -> dict[str, Any]:
    return heard(Session(key, base_url=base).tts(TTSRequest(text="Hello there.", **fields)))


def tts_async(base: str, key: str) -> dict[str, Any]:
    session = Session(key, base_url=base)
    return asyncio.run(heard_async(session.tts.awaitable(TTSRequest(text="Hello there.", format="wav"))))


def cloned(base: str, key: str, recording: str) -> dict[str, Any]:
    reference = ReferenceAudio(audio=Path(recording).read_bytes(), text="What is said.")
    return heard(Session(key, base_url=base).tts(TTSRequest(text="Hello.", format="wav", references=[reference])))


def live(base: str, key: str) -> dict[str, Any]:
    """The second sentence is not written before the first is heard; this client can't flush."""
    sound, was_heard, answered = Heard(), threading.Event(), []

    def text() -> Iterator[str]:
        yield "This is the first of two sentences, and it is a rather long one, as sentences go. "
        yield "Now the next one "
        answered.append(was_heard.wait(PATIENCE))
        yield "ends."

    with WebSocketSession(key, base_url=base) as session:
        for piece in session.tts(TTSRequest(text="", format="pcm", sample_rate=16000), text()):
            sound.add(piece)
            was_heard.set()
    return {"answered": answered[0], **sound.told()}


def live_async(base: str, key: str) -> dict[str, Any]:
    async def text() -> AsyncIterator[str]:
        for word in "Words that come one by one.".split():
            yield f"{word} "

    async def speak() -> dict[str, Any]:
        async with AsyncWebSocketSession(key, base_url=base) as session:
            return await heard_async(session.tts(TTSRequest(text="", format="wav"), text()))

    return asyncio.run(speak())


def voices(base: str, key: str, recording: str) -> dict[str, Any]:
    """A voice from its creation to its end."""
    session = Session(key, base_url=base)
    samples = [Path(recording).read_bytes()]
    voice = session.create_model(title="Cora", voices=samples, texts=["What is said."])
    session.update_model(voice.id, description="Of the tests.")
    listed = session.list_models(title="Cora")
    spoken = heard(session.tts(TTSRequest(text="Hello there.", reference_id=voice.id, format="wav")))
    session.delete_model(voice.id)
    return {
        "created": [voice.title, voice.state],
        "listed": [[item.title, item.description] for item in listed.items],
        "spoken": spoken,
        "after": failure(lambda: session.get_model(voice.id)),
    }


def account(base: str, key: str) -> dict[str, Any]:
    session = Session(key, base_url=base)
    return {"credit": float(session.get_api_credit().credit), "balance": session.get_package().balance}


def failures(base: str, key: str) -> dict[str, Any]:
    session, stranger = Session(key, base_url=base), Session("not a key", base_url=base)
    nobody = TTSRequest(text="Hello.", reference_id="nobody")
    live = WebSocketSession(key, base_url=base)
    return {
        "stranger": failure(lambda: list(stranger.tts(TTSRequest(text="Hello.")))),
        "no such voice": failure(lambda: list(session.tts(nobody))),
        "no such voice live": failure(lambda: list(live.tts(nobody, iter(["Hello."])))),
        "stranger's models": failure(stranger.list_models),
    }


if __name__ == "__main__":
    run(tts, tts_async, cloned, live, live_async, voices, account, failures)
