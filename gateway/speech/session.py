"""Sessions: one speech request from acceptance to its end, which always reaches the engine and the metrics."""

from __future__ import annotations

import asyncio
import logging
import uuid
from types import TracebackType

from aiohttp import web

from common.messages import FinishReason
from gateway.access.auth import CLIENT
from gateway.engine.streams import Source
from gateway.errors import RequestError, SlowClientError
from gateway.http.idempotency import SUPERSEDED
from gateway.observe.metrics import CancelCause
from gateway.observe.timeline import Timeline
from gateway.services import ARRIVAL, LOGGED, REQUEST_ID, TRACE, Gateway

log = logging.getLogger(__name__)


class Session:
    """Context of a speech request: on exit, closes the stream with its finish reason and counts the request."""

    def __init__(
        self, gateway: Gateway, asked: web.Request, api: str, sound_format: str, arrival: float | None = None
    ) -> None:
        """``arrival``: by the clock of the event loop, if later than that of the HTTP request."""
        self.request = uuid.uuid4().hex  # the engine's id, never one a client chose
        self.stream: Source | None = None
        self.reason: FinishReason = "error"
        self.client = asked[CLIENT]
        self._gateway = gateway
        self._api, self._format = api, sound_format
        self._arrival = asked[ARRIVAL] if arrival is None else arrival
        self.timeline = Timeline(asked[REQUEST_ID], asked[TRACE], self.request, api, sound_format, self._arrival)
        asked[LOGGED] = True

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens of the request."""
        return 0 if self.stream is None else self.stream.prompt_tokens

    def __enter__(self) -> Session:
        self._gateway.timelines.begin(self.timeline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cause = None if error is None else _cause(error)
        if error is not None:
            self.reason = _reason(error)
        if self.reason == "cancelled" and self.stream is not None and self.stream.at_rest:
            self.reason, cause = "stop", None  # there was nothing left to break off
        if self.stream is not None:
            self.stream.close(self.reason)
            self.client.count_sound(self.stream.received / self._gateway.model.frame_rate)
        metrics = self._gateway.metrics
        seconds = asyncio.get_running_loop().time() - self._arrival
        metrics.requests.labels(self._api, self._format, self.reason).inc()
        metrics.e2e_latency.observe(seconds)
        if cause is not None:
            metrics.cancelled(cause)
        if self.reason == "stop" and self.timeline.seconds:
            metrics.speech_rate.observe(self.timeline.characters / self.timeline.seconds)
        self.timeline.end(self.reason, error.code if isinstance(error, RequestError) else None)
        self._gateway.timelines.end(self.timeline)
        log.info("spoken", extra={"model": self._gateway.model.name} | self.timeline.summary())


def _reason(error: BaseException) -> FinishReason:
    if isinstance(error, RequestError):
        return error.reason
    if isinstance(error, SlowClientError):
        return "slow_client"
    return "cancelled" if isinstance(error, asyncio.CancelledError | ConnectionError) else "error"


def _cause(error: BaseException) -> CancelCause | None:
    """Return the cause of a cancellation by the gateway, if it is one of these."""
    if isinstance(error, ConnectionError):
        return "disconnect"
    if isinstance(error, asyncio.CancelledError):
        why = error.args[0] if error.args else None
        return "superseded" if why == SUPERSEDED else "disconnect" if why is None else None
    if isinstance(error, SlowClientError):
        return "slow_client"
    return "deadline" if isinstance(error, RequestError) and error.reason == "timeout" else None
