"""``openai``, OpenAI's own client."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI
from scenarios import Heard, failure, heard, run

DEFAULTS: dict[str, Any] = {"model": "gpt-4o-mini-tts", "input": "Hello there.", "voice": "alloy"}


def create(base: str, key: str, prefix: str = "/v1", **fields: Any) -> dict[str, Any]:
    reply = OpenAI(api_key=key, base_url=base + prefix).audio.speech.create(**DEFAULTS | fields)
    return {"media_type": reply.response.headers["content-type"], **heard([reply.content])}


def streamed(base: str, key: str, **fields: Any) -> dict[str, Any]:
    client, sound = OpenAI(api_key=key, base_url=f"{base}/v1"), Heard()
    with client.audio.speech.with_streaming_response.create(**DEFAULTS | fields) as reply:
        for piece in reply.iter_bytes():
            sound.add(piece)
        return {"request_id": reply.request_id, **sound.told()}


def streamed_async(base: str, key: str, **fields: Any) -> dict[str, Any]:
    async def speak() -> dict[str, Any]:
        client, sound = AsyncOpenAI(api_key=key, base_url=f"{base}/v1"), Heard()
        async with client.audio.speech.with_streaming_response.create(**DEFAULTS | fields) as reply:
            async for piece in reply.iter_bytes(1024):
                sound.add(piece)
        return sound.told()

    return asyncio.run(speak())


def events(base: str, key: str, **fields: Any) -> dict[str, Any]:
    client, sound, last = OpenAI(api_key=key, base_url=f"{base}/v1"), Heard(), {}
    wanted = DEFAULTS | {"stream_format": "sse"} | fields
    with client.audio.speech.with_streaming_response.create(**wanted) as reply:
        for line in filter(None, reply.iter_lines()):
            last = json.loads(line.removeprefix("data: "))
            sound.add(base64.b64decode(last.get("audio", "")))
    return {"end": last, **sound.told()}


def lists(base: str, key: str) -> dict[str, Any]:
    client = OpenAI(api_key=key, base_url=f"{base}/v1")
    models = [model.id for model in client.models.list()]
    return {"models": models, "model": client.models.retrieve(models[0]).id}


def voices(base: str, key: str, recording: str) -> dict[str, Any]:
    client = OpenAI(api_key=key, base_url=f"{base}/v1")
    text = {"ref_text": "What is said."}  # beyond OpenAI's own fields
    created = client.audio.voices.create(name="clara", audio_sample=Path(recording), consent="given", extra_body=text)
    spoken = heard([client.audio.speech.create(**DEFAULTS | {"voice": {"id": created.id}}).content])
    return {"id": created.id, "name": created.name, "spoken": spoken}


def failures(base: str, key: str) -> dict[str, Any]:
    client, stranger = OpenAI(api_key=key, base_url=f"{base}/v1"), OpenAI(api_key="not a key", base_url=f"{base}/v1")

    def speak(**fields: Any) -> dict[str, Any]:
        return failure(lambda: client.audio.speech.create(**DEFAULTS | fields))

    return {
        "stranger": failure(lambda: stranger.audio.speech.create(**DEFAULTS)),
        "no such voice": speak(voice="nobody"),
        "no such model": speak(model="nothing"),
        "no such format": speak(response_format="midi"),
        "too fast": speak(speed=9),
        "no text": speak(input=""),
    }


def one_too_many(base: str, key: str) -> dict[str, Any]:
    """A second request with a key for one at a time: refused, and served when it is sent again after the first."""
    hasty, patient = (OpenAI(api_key=key, base_url=f"{base}/v1", max_retries=count) for count in (0, 2))
    first = threading.Thread(target=lambda: patient.audio.speech.create(**DEFAULTS))
    first.start()
    time.sleep(0.4)
    refused = failure(lambda: hasty.audio.speech.create(**DEFAULTS))
    served = heard([patient.audio.speech.create(**DEFAULTS).content])
    first.join()
    return {"refused": refused, "served": served}


if __name__ == "__main__":
    run(create, streamed, streamed_async, events, lists, voices, failures, one_too_many)
