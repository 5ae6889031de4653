"""What the doors share: one of each, made at start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from common.config import Config
from gateway.engine import Engine
from gateway.metrics import GatewayMetrics
from gateway.model import ServedModel
from gateway.voices import Voices

ARRIVAL: web.RequestKey[float] = web.RequestKey("arrival", float)
"""When a request came, by the clock of the event loop."""

REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
"""The id in the reply's X-Request-Id."""


class Gateway:
    """The services, and whether the gateway still takes requests."""

    def __init__(self, config: Config, model: ServedModel, engine: Engine, metrics: GatewayMetrics) -> None:
        self.settings = config.gateway
        self.run_dir: Path = config.run_path
        self.model = model
        self.engine = engine
        self.metrics = metrics
        self.voices = Voices(config.data_path / "voices", model, config.gateway.max_voices)
        self.encoders = ThreadPoolExecutor(config.gateway.encoder_threads, thread_name_prefix="encoder")
        self.draining = False
        self.idle = asyncio.Event()  # no speech or voice request is under way
        self.idle.set()
        self._active = 0

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """A speech or voice request, for which a drain has to wait."""
        self._active += 1
        self.metrics.in_flight.set(self._active)
        self.idle.clear()
        try:
            yield
        finally:
            self._active -= 1
            self.metrics.in_flight.set(self._active)
            if not self._active:
                self.idle.set()

    def close(self) -> None:
        self.encoders.shutdown(wait=False, cancel_futures=True)


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
