"""One speech request from acceptance to its end: whatever happens, the engine is told and the end is counted."""

from __future__ import annotations

import asyncio
import logging
import uuid
from types import TracebackType

from common.messages import FinishReason
from gateway.accounts import Client
from gateway.errors import ApiError
from gateway.services import Gateway
from gateway.streams import Source

log = logging.getLogger(__name__)


class SlowClientError(Exception):
    """The client read nothing for too long."""


class Session:
    """A context: on leaving it, the stream is closed with the reason of the end, and the request is counted."""

    def __init__(self, gateway: Gateway, api: str, sound_format: str, arrival: float, client: Client) -> None:
        self.request = uuid.uuid4().hex  # the engine's id, never one a client chose
        self.stream: Source | None = None
        self.reason: FinishReason = "error"
        self.client = client
        self._gateway = gateway
        self._api, self._format, self._arrival = api, sound_format, arrival

    @property
    def prompt_tokens(self) -> int:
        """That the request became."""
        return 0 if self.stream is None else self.stream.prompt_tokens

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.reason = _reason(error)
        if self.stream is not None:
            self.stream.close(self.reason)
            self.client.count_sound(self.stream.received / self._gateway.model.frame_rate)
        metrics = self._gateway.metrics
        seconds = asyncio.get_running_loop().time() - self._arrival
        metrics.requests.labels(self._api, self._format, self.reason).inc()
        metrics.e2e_latency.observe(seconds)
        if self.reason == "cancelled":
            metrics.client_disconnects.inc()
        log.info("ended", extra={"engine_request": self.request, "outcome": self.reason, "seconds": round(seconds, 4)})


def _reason(error: BaseException) -> FinishReason:
    if isinstance(error, ApiError):
        return error.reason
    if isinstance(error, SlowClientError):
        return "slow_client"
    return "cancelled" if isinstance(error, asyncio.CancelledError | ConnectionError) else "error"
