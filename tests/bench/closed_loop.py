"""A closed loop of clients: each sends its next request when it has heard the last, until the time is over.

On one machine with the server, clients take from it what they measure. So they are lean, each a connection whose bytes
go through a parser in C. Figures are of a window in the middle, when as many streams as clients are under way; how a
load begins and ends is left out. On a virtual machine, what its host gives to others counts as little as can be: frames
are those of the quieter half of the window's seconds.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import httptools
import numpy as np
import psutil
import uvloop

BYTES_PER_FRAME = 2 * 800  # of a checkpoint's own rate, 20 frames/s at 16 kHz
WARM_UP = 2.0  # seconds
START_SECONDS = 1.0  # within which clients begin

Fields = Callable[[int, int], dict[str, Any]]
"""The body of a request: of which client, its how-manieth."""


class Loop(NamedTuple):
    """What the clients heard within the window."""

    frames_per_second: float  # mean of its quieter seconds
    first_sound: float  # seconds, the median of the requests sent within it
    stolen: float  # share of the quieter seconds that the host of this machine gave to others


def closed_loop(base: str, clients: int, seconds: int, fields: Fields, middle: Callable[[], None]) -> Loop:
    """Run the clients for ``seconds`` behind a warm-up; ``middle`` is called when the window begins and when it ends.

    Raises:
        AssertionError: a reply was an error, or broken off.
    """
    return uvloop.run(_run(base, clients, seconds, fields, middle))


async def _run(base: str, clients: int, seconds: int, fields: Fields, middle: Callable[[], None]) -> Loop:
    load = _Load(time.monotonic() + WARM_UP, seconds, fields)
    url, loop = urlsplit(base), asyncio.get_running_loop()
    connections = [
        await loop.create_connection(partial(_Client, load, number), url.hostname, url.port)
        for number in range(clients)
    ]
    await asyncio.sleep(load.began - time.monotonic())
    await asyncio.to_thread(middle)
    stolen = [_stolen_seconds()]
    for second in range(seconds):
        await asyncio.sleep(load.began + second + 1 - time.monotonic())
        stolen.append(_stolen_seconds())
    await asyncio.to_thread(middle)
    load.over = True
    for transport, _ in connections:
        transport.abort()
    assert not load.failures, load.failures[0]
    first_sound = statistics.median(load.firsts) if load.firsts else float("nan")
    by_second = np.diff(stolen) / (psutil.cpu_count() or 1)
    quieter = by_second <= np.median(by_second)
    return Loop(float(load.heard[quieter].mean()) / BYTES_PER_FRAME, first_sound, float(by_second[quieter].mean()))


def _stolen_seconds() -> float:
    """Processor time that this machine wanted and its host gave to others, as far as the system says."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


class _Load:
    """What the clients have in common. ``heard``: bytes of sound in each second of the window."""

    def __init__(self, began: float, seconds: int, fields: Fields) -> None:
        self.began, self.ended = began, began + seconds
        self.fields = fields
        self.heard = np.zeros(seconds, np.int64)
        self.firsts: list[float] = []
        self.failures: list[str] = []
        self.over = False

    def hear(self, size: int, now: float) -> None:
        if self.began <= now < self.ended:
            self.heard[int(now - self.began)] += size


class _Client(asyncio.Protocol):
    """One client on one connection, which it keeps, as real services do. Called back by its parser."""

    def __init__(self, load: _Load, number: int) -> None:
        self._load, self._number = load, number
        self._turn = 0
        self._sent = 0.0
        self._silent = True
        self._failed = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        start = random.Random(self._number).uniform(0, START_SECONDS)
        asyncio.get_running_loop().call_later(start, self._ask)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._load.over:
            self._load.failures.append(f"client {self._number} lost its connection: {error}")

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != 200:
            self._failed += body
            return
        now = time.monotonic()
        self._load.hear(len(body), now)
        if self._silent and self._load.began <= self._sent < self._load.ended:
            self._load.firsts.append(now - self._sent)
        self._silent = False

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() != 200:
            self._load.failures.append(self._failed.decode())
        elif not self._load.over:
            self._ask()

    def _ask(self) -> None:
        body = json.dumps(self._load.fields(self._number, self._turn)).encode()
        head = f"POST /v1/tts HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self._turn += 1
        self._parser = httptools.HttpResponseParser(self)
        self._sent, self._silent = time.monotonic(), True
        self._transport.write(f"{head}\r\n\r\n".encode() + body)
