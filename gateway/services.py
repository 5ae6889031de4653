"""The services that the endpoints share: one of each, made at start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from aiohttp import web

from common.config import ROOT, Config
from gateway.access.api_keys import ENVIRONMENT, Keys
from gateway.checkpoint.served_model import ServedModel
from gateway.engine.bounds import Bounds
from gateway.engine.client import Engine
from gateway.http.buffers import Budget
from gateway.http.idempotency import IdempotencyKeys
from gateway.observe.merge import Scrapes
from gateway.observe.metrics import GatewayMetrics
from gateway.observe.timeline import Timelines
from gateway.observe.trace_context import TraceContext
from gateway.voices.service import Voices

ARRIVAL: web.RequestKey[float] = web.RequestKey("arrival", float)
"""Time of a request's arrival, by the clock of the event loop."""

REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
"""The id in the reply's X-Request-Id."""

TRACE: web.RequestKey[TraceContext] = web.RequestKey("trace", TraceContext)
"""The trace that the request belongs to."""

LOGGED: web.RequestKey[bool] = web.RequestKey("logged", bool)
"""Set where a session writes a line of its own about the request."""


class Socket(Protocol):
    """The part of a WebSocket that limits and a shutdown need. ``client``: name of the client that opened it."""

    client: str

    async def leave(self) -> None:
        """Close the socket if it is idle."""

    async def cut_off(self) -> None:
        """Close the socket now."""


class Gateway:
    """The shared services, and whether the gateway still accepts requests."""

    def __init__(
        self, config: Config, model: ServedModel, engine: Engine, metrics: GatewayMetrics, bounds: Bounds
    ) -> None:
        self.settings = config.gateway
        self.run_dir: Path = config.run_path
        self.model = model
        self.engine = engine
        self.metrics = metrics
        self.scrapes = Scrapes(config.run_path)
        self.bounds = bounds
        self.timelines = Timelines(config.debug.requests)
        self.keys = _keys(config, metrics)
        self.idempotency = IdempotencyKeys()
        self.voices = Voices(config.voices_path, model, engine, config.gateway, metrics)
        self.encoders = ThreadPoolExecutor(config.gateway.encoder_threads, thread_name_prefix="encoder")
        self.memory = Budget(config.gateway.max_buffered_bytes)
        self.disk = Budget(config.gateway.max_spool_bytes)
        self.spool_dir = config.data_path / "spool"
        metrics.watch_buffers(lambda: self.memory.held, lambda: self.disk.held)
        self.sockets: set[Socket] = set()  # that are open
        self.draining = False  # about to stop: not ready any more,
        self.refusing = False  # and a little later without new requests
        self.idle = asyncio.Event()  # no speech or voice request is under way
        self.idle.set()
        self._active = 0

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a speech or voice request, for which a drain has to wait."""
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
        self.voices.close()
        self.scrapes.close()
        self.encoders.shutdown(wait=False, cancel_futures=True)


def _keys(config: Config, metrics: GatewayMetrics) -> Keys:
    file = config.gateway.api_keys_file
    return Keys(ROOT / file if file else None, os.environ.get(ENVIRONMENT, ""), metrics)


GATEWAY: web.AppKey[Gateway] = web.AppKey("gateway", Gateway)
