"""Load for the chaos suite: clients in a closed loop whose replies are compared with those of an undisturbed run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

HANG_SECONDS = 90.0  # for a whole reply: longer than every bound of the group
PIECE = 4096  # bytes that a slow client reads at a time
TEXTS = ["One.", "Two sentences. Here is the other.", "The tide came in, and nobody on the pier had noticed. " * 3]


@dataclass(frozen=True)
class Speech:
    """A request that clients make. ``slow``: seconds that the client waits between pieces."""

    text: str
    seed: int
    frames: int
    streaming: bool
    slow: float

    @property
    def body(self) -> dict[str, object]:
        common = {"text": self.text, "seed": self.seed, "max_new_tokens": self.frames, "format": "pcm"}
        return common | {"streaming": self.streaming}


def speeches(chance: random.Random, count: int) -> list[Speech]:
    """Different requests: short and long, streamed and buffered, with quick and slow readers."""
    return [
        Speech(
            chance.choice(TEXTS),
            seed,
            chance.choice([3, 20, 60, 150]),
            streaming=chance.random() < 0.8,
            slow=chance.choice([0.0, 0.0, 0.02]),
        )
        for seed in range(count)
    ]


@dataclass
class Tally:
    """Outcomes of all replies: ``whole``, ``named`` (ended with an error that has a name), ``broken`` (without one),
    ``different``, ``hang``."""

    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    faulty: list[str] = field(default_factory=list)  # those that must not be


class Load:
    """``clients`` ask for speeches until :meth:`stop`. ``may_break`` is true while connections may be lost."""

    def __init__(self, base: str, requests: list[Speech], chance: random.Random) -> None:
        self.tally = Tally()
        self.breaks: list[tuple[float, float]] = []  # spans of time in which connections may break
        self._base, self._requests, self._chance = base, requests, chance
        self._expected: dict[int, bytes] = {}
        self._stopped = False

    async def learn(self) -> None:
        """Get the undisturbed replies."""
        async with aiohttp.ClientSession() as session:
            for speech in self._requests:
                async with session.post(f"{self._base}/v1/tts", json=speech.body) as reply:
                    assert reply.status == 200, await reply.text()
                    self._expected[speech.seed] = await reply.read()

    async def run(self, clients: int) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
            await asyncio.gather(*(self._client(session) for _ in range(clients)))

    def stop(self) -> None:
        self._stopped = True

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while not self._stopped:
            speech = self._chance.choice(self._requests)
            began = time.monotonic()
            outcome, what = await self._ask(session, speech)
            if outcome == "broken" and self._may_break(began, time.monotonic()):
                outcome, what = (
                    "named",
                    "gateway_lost",
                )  # by the fault, not by the gateway, which was not there any more
            self._count(speech, outcome, what)
            if outcome != "whole":
                await asyncio.sleep(0.2)

    async def _ask(self, session: aiohttp.ClientSession, speech: Speech) -> tuple[str, str]:
        """Outcome, and the name of the error or what was different."""
        body = b""
        request = f"chaos-{self._chance.getrandbits(64):x}"
        try:
            async with (
                asyncio.timeout(HANG_SECONDS),
                session.post(f"{self._base}/v1/tts", json=speech.body, headers={"X-Request-Id": request}) as reply,
            ):
                while piece := await reply.content.read(
                    PIECE if speech.slow else -1 if not speech.streaming else 2**16
                ):
                    body += piece
                    await asyncio.sleep(speech.slow)
                if reply.status != 200:
                    return "named", str(json.loads(body)["error"]["code"])
        except TimeoutError:
            return "hang", f"after {len(body)} bytes"
        except aiohttp.ClientError as error:
            name = await self._error_of(session, request)
            return ("named", name) if name else ("broken", repr(error))
        expected = self._expected[speech.seed]
        return ("whole", "") if body == expected else ("different", _difference(body, expected))

    async def _error_of(self, session: aiohttp.ClientSession, request: str) -> str:
        """The name of the error by which a reply was broken off; "": the gateway knows of none."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, KeyError):
            async with asyncio.timeout(5), session.get(f"{self._base}/debug/requests/{request}") as reply:
                return str((await reply.json())["error"] or "")
        return ""

    def _may_break(self, began: float, ended: float) -> bool:
        return any(began <= until and ended >= since for since, until in self.breaks)

    def _count(self, speech: Speech, outcome: str, what: str) -> None:
        self.tally.outcomes[outcome] += 1
        if outcome == "named":
            self.tally.errors[what] += 1
        elif outcome != "whole":
            self.tally.faulty.append(f"{outcome}: {what}: {speech}")


def _difference(body: bytes, expected: bytes) -> str:
    same = next((place for place, pair in enumerate(zip(body, expected, strict=False)) if pair[0] != pair[1]), -1)
    return f"{len(body)} bytes of {len(expected)}, first difference at {same}"
