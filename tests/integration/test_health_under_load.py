"""Heavy work never holds the gateway up: it answers while a long recording is read and a long text is encoded."""

from __future__ import annotations

import asyncio
import io
import time

import aiohttp
import numpy as np
import pytest
import soundfile

from tests.integration.client import post
from tests.integration.group import costs, running

RATE = 44100
CLIP_SECONDS = 30
PATIENCE = 0.25  # seconds; on a machine that does all of this on two cores


def recording() -> bytes:
    """A noise that swells and fades, as wav."""
    time_axis = np.arange(CLIP_SECONDS * RATE) / RATE
    noise = np.random.default_rng(0).standard_normal(time_axis.size)
    file = io.BytesIO()
    soundfile.write(file, 0.1 * noise * np.sin(time_axis) ** 2, RATE, format="wav")
    return file.getvalue()


async def waits(base: str, until: asyncio.Event) -> list[float]:
    """How long each look at /healthz took, one every 20 ms."""
    took = []
    async with aiohttp.ClientSession() as session:
        while not until.is_set():
            began = time.monotonic()
            async with session.get(f"{base}/v1/health") as reply:
                assert reply.status == 200
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.02)
    return took


@pytest.mark.slow
def test_health_is_answered_while_the_gateway_works() -> None:
    async def load(base: str, done: asyncio.Event) -> None:
        form = aiohttp.FormData()
        form.add_field("id", "noise")
        form.add_field("text", "nothing but noise")
        form.add_field("audio", recording(), filename="noise.wav", content_type="audio/wav")
        async with aiohttp.ClientSession() as session, session.post(f"{base}/v1/references/add", data=form) as reply:
            assert reply.status == 200, await reply.text()
        text = "A sentence that is as long as those that people write. " * 60
        reply = await post(base, "/v1/tts", {"text": text, "format": "mp3", "streaming": False})
        assert reply.status == 200
        done.set()

    async def both(base: str) -> list[float]:
        done = asyncio.Event()
        loaded = asyncio.create_task(load(base, done))
        took = await waits(base, done)
        await loaded
        return took

    with running(*costs(step_ms=1.0, ar_worker__cost__frames=400)) as group:
        took = asyncio.run(asyncio.wait_for(both(group.base), 120))
    assert len(took) > 20
    assert np.quantile(took, 0.99) < PATIENCE
