"""A client that notes when what arrived. Plain HTTP by aiohttp; each call opens a connection of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np

WAV_HEADER = 44  # bytes
TIMEOUT = aiohttp.ClientTimeout(total=120)


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]  # in any case
    body: bytes = b""
    started: float = 0.0
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (time, bytes)
    broken: bool = False  # the connection ended before the reply did

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]

    @property
    def samples(self) -> np.ndarray:
        """16-bit samples of a wav or pcm reply."""
        return np.frombuffer(self.body[WAV_HEADER:] if self.body.startswith(b"RIFF") else self.body, "<i2")

    @property
    def first_after(self) -> float:
        return self.arrivals[0][0] - self.started

    @property
    def took(self) -> float:
        return self.arrivals[-1][0] - self.started


async def post(
    base: str,
    path: str,
    fields: dict[str, Any],
    stop_after: int | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    """Post JSON. ``stop_after``: hang up after so many bytes."""
    started = time.monotonic()
    async with (
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
        session.post(base + path, json=fields, headers=headers) as response,
    ):
        reply = Reply(response.status, response.headers, started=started)
        try:
            async for chunk in response.content.iter_any():
                reply.body += chunk
                reply.arrivals.append((time.monotonic(), len(chunk)))
                if stop_after is not None and len(reply.body) >= stop_after:
                    response.close()
                    break
        except aiohttp.ClientPayloadError:
            reply.broken = True
        return reply


async def speak(base: str, text: str, stop_after: int | None = None, **fields: Any) -> Reply:
    """Sound as wav, which has the model's rate, unless another format is asked for."""
    return await post(base, "/v1/tts", {"text": text, "format": "wav"} | fields, stop_after)


@dataclass
class CodesReply:
    status: int
    codes: np.ndarray  # int [10, frames]
    finish: dict[str, Any]
    broken: bool


async def codes(base: str, text: str, **fields: Any) -> CodesReply:
    """The codes of a request, from the event stream."""
    reply = await post(base, "/v1/codes", {"text": text} | fields)
    if reply.status != 200:
        return CodesReply(reply.status, np.empty((10, 0)), json.loads(reply.body), reply.broken)
    events = [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: ")]
    frames = [event for event in events if "codes" in event]
    assert [event["index"] for event in frames] == list(range(len(frames)))
    finish = events[-1] if events and "finish_reason" in events[-1] else {}
    return CodesReply(200, np.array([event["codes"] for event in frames]).reshape(-1, 10).T, finish, reply.broken)


def gather(*calls: Any) -> list[Any]:
    """Run calls at once and return their results in order."""

    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*calls))

    return asyncio.run(all_of_them())
