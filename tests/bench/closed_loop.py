"""A closed loop of clients: each sends its next request when it has heard the last, until the time is over.

The clients run at a low priority: on one machine with the server, they would take from it what they measure. Figures
are of a window in the middle, when as many streams as clients are under way; how a load begins and ends is left
out. The clients keep their connections, as those of real services do.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiohttp

BYTES_PER_FRAME = 2 * 800  # of a checkpoint's own rate, 20 frames/s at 16 kHz
WARM_UP = 2.0  # seconds
START_SECONDS = 1.0  # within which clients begin
CLIENTS_NICE = 5

Fields = Callable[[int, int], dict[str, Any]]
"""The body of a request: of which client, its how-manieth."""


class Loop(NamedTuple):
    """What the clients saw within the window."""

    frames_per_second: float
    first_sound: float  # median of the requests sent within it, seconds
    requests: int  # whose reply was whole


async def closed_loop(base: str, clients: int, seconds: float, fields: Fields, middle: Callable[[], None]) -> Loop:
    """Run the clients for ``seconds`` behind a warm-up; ``middle`` is called when the window begins and when it ends.

    Raises:
        AssertionError: a reply was an error.
    """
    began = time.monotonic() + WARM_UP
    ended = began + seconds
    heard = 0
    firsts: list[float] = []
    whole = 0

    async def request(session: aiohttp.ClientSession, body: dict[str, Any]) -> None:
        nonlocal heard
        sent = time.monotonic()
        first = True
        async with session.post(f"{base}/v1/tts", json=body) as response:
            assert response.status == 200, await response.text()
            async for chunk in response.content.iter_any():
                now = time.monotonic()
                if began <= now < ended:
                    heard += len(chunk)
                    if first and sent >= began:
                        firsts.append(now - sent)
                first = False

    async def client(session: aiohttp.ClientSession, number: int) -> None:
        nonlocal whole
        await asyncio.sleep(random.Random(number).uniform(0, START_SECONDS))
        turn = 0
        while time.monotonic() < ended:
            await request(session, fields(number, turn))
            whole += began <= time.monotonic() < ended
            turn += 1

    async def clock() -> None:
        for moment in (began, ended):
            await asyncio.sleep(moment - time.monotonic())
            await asyncio.to_thread(middle)

    os.setpriority(os.PRIO_PROCESS, 0, CLIENTS_NICE)
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(client(session, number)) for number in range(clients)]
        await clock()
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    first_sound = statistics.median(firsts) if firsts else float("nan")
    return Loop(heard / BYTES_PER_FRAME / seconds, first_sound, whole)
