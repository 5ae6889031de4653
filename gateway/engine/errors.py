"""Errors of the engine, as the inner rooms of the gateway see them."""

from __future__ import annotations

from common.messages import Failure, FinishReason
from gateway.errors import RequestError

SCHEDULER_LOST = Failure(503, "scheduler_lost", "the scheduler of this request was lost", retry_after=2)
NOT_READY = Failure(503, "not_ready", "the scheduler is starting or being restarted", retry_after=2)
INTERNAL_ERROR = Failure(500, "internal_error", "the gateway failed at this request")


class EngineError(RequestError):
    """The engine refused a request or failed; ``failure`` is what the client is told."""

    def __init__(self, failure: Failure) -> None:
        rejected = failure.status < 500
        reason: FinishReason = "rejected" if rejected else "error"
        param = "text" if failure.code == "context_length_exceeded" else None
        super().__init__("invalid" if rejected else "internal", failure.code, failure.message, param, reason)
        self.failure = failure
