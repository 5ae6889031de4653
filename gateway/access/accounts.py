"""Clients: holders of API keys and anonymous peers, with their limits and usage."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias, get_args

from gateway.http.errors import ApiError
from gateway.observe.metrics import GatewayMetrics
from gateway.voices.viewer import Viewer

Scope: TypeAlias = Literal["speak", "voices", "admin"]
"""Permission of a key: to make speech, to add and change voices, to see and change everything."""

ALL_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))

_WAIT_FOR_A_PLACE = 1  # seconds


class Limits(NamedTuple):
    """Bounds of one key; 0: none. ``concurrency``: requests under way; ``rate``: requests per minute, also at once."""

    concurrency: int = 0
    rate: float = 0.0


class Usage(NamedTuple):
    """Usage of an account since the gateway started."""

    requests: int
    characters: int
    audio_seconds: float


class Client:
    """Sender of requests. ``name`` identifies its fair share: a key's name, or the peer's address."""

    owner = ""  # of the voices that it adds

    def __init__(self, name: str, scopes: frozenset[Scope]) -> None:
        self.name, self.scopes = name, scopes

    @property
    def viewer(self) -> Viewer:
        """Its view of the voice library."""
        return Viewer(self.owner, "admin" in self.scopes)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold a place for one running request.

        Raises:
            ApiError: 429: this client has too many of them, or sends them too fast.
        """
        yield

    def count_text(self, characters: int) -> None:
        """Count accepted text."""

    def count_sound(self, seconds: float) -> None:
        """Count generated sound."""


class Account(Client):
    """Holder of a key. It survives a reload of the keys, so its counts continue."""

    def __init__(self, name: str, limits: Limits, scopes: frozenset[Scope], metrics: GatewayMetrics) -> None:
        super().__init__(name, scopes)
        self.owner = name
        self.limits = limits
        self._metrics = metrics
        self._under_way = 0
        self._allowance = math.inf  # requests that may begin now, but for what the rate allows
        self._refilled = time.monotonic()
        self._requests, self._characters, self._audio_seconds = 0, 0, 0.0

    @property
    def usage(self) -> Usage:
        return Usage(self._requests, self._characters, self._audio_seconds)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        concurrency = self.limits.concurrency
        if concurrency and self._under_way >= concurrency:
            raise self._refusal("concurrency", f"{concurrency} requests of this key are under way", _WAIT_FOR_A_PLACE)
        self._take_turn()
        self._under_way += 1
        self._requests += 1
        self._metrics.key_requests.labels(self.name).inc()
        try:
            yield
        finally:
            self._under_way -= 1

    def count_text(self, characters: int) -> None:
        self._characters += characters
        self._metrics.key_characters.labels(self.name).inc(characters)

    def count_sound(self, seconds: float) -> None:
        self._audio_seconds += seconds
        self._metrics.key_audio_seconds.labels(self.name).inc(seconds)

    def _take_turn(self) -> None:
        """Token bucket: holds one minute's requests and refills at the allowed rate."""
        rate, now = self.limits.rate, time.monotonic()
        if not rate:
            return
        capacity = max(1.0, rate)
        self._allowance = min(capacity, self._allowance + (now - self._refilled) * rate / 60)
        self._refilled = now
        if self._allowance < 1:
            wait = math.ceil((1 - self._allowance) * 60 / rate)
            raise self._refusal("rate", f"this key may send {rate:g} requests per minute", wait)
        self._allowance -= 1

    def _refusal(self, limit: str, message: str, wait: int) -> ApiError:
        self._metrics.key_refusals.labels(self.name, limit).inc()
        return ApiError(429, f"{limit}_limit_exceeded", message, retry_after=wait)
