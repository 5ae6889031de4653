"""What every script of this folder does: run the scenario it is asked for, and print the result as JSON.

python SCRIPT ADDRESS SCENARIO OPTIONS      # OPTIONS: JSON, the keyword arguments of the scenario
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any


class Heard:
    """Sound as it comes: of each piece when it came, in seconds since the request."""

    def __init__(self) -> None:
        self.sound = b""
        self._began = time.monotonic()
        self._arrivals: list[float] = []

    def add(self, piece: bytes) -> None:
        if piece:
            self.sound += piece
            self._arrivals.append(time.monotonic() - self._began)

    def told(self) -> dict[str, Any]:
        times = self._arrivals or [0.0]
        sound = base64.b64encode(self.sound).decode()
        return {"sound": sound, "pieces": len(self._arrivals), "first": times[0], "last": times[-1]}


def heard(pieces: Iterable[bytes]) -> dict[str, Any]:
    """``pieces`` must not have been asked for before this call."""
    sound = Heard()
    for piece in pieces:
        sound.add(piece)
    return sound.told()


async def heard_async(pieces: AsyncIterable[bytes]) -> dict[str, Any]:
    sound = Heard()
    async for piece in pieces:
        sound.add(piece)
    return sound.told()


def failure(call: Callable[[], Any]) -> dict[str, Any]:
    """What a user sees of a call that fails."""
    try:
        call()
    except Exception as error:
        return described(error)
    raise AssertionError("it did not fail")


async def failure_async(call: Awaitable[Any]) -> dict[str, Any]:
    try:
        await call
    except Exception as error:
        return described(error)
    raise AssertionError("it did not fail")


def described(error: Exception) -> dict[str, Any]:
    names = ("status", "status_code", "message", "code", "param", "request_id")
    facts = {name: getattr(error, name) for name in names if isinstance(getattr(error, name, None), (str, int))}
    return {"type": type(error).__name__, "text": str(error), **facts}


def run(*scenarios: Callable[..., Any]) -> None:
    base, name, options = sys.argv[1:4]
    scenario = {function.__name__: function for function in scenarios}[name]
    print(json.dumps(scenario(base, **json.loads(options))))
