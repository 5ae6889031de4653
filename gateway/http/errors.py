"""HTTP errors: a status and one JSON body that the SDKs of both API families can read."""

from __future__ import annotations

import msgspec
from aiohttp import web

from common.messages import Failure, FinishReason
from gateway.engine.errors import EngineError
from gateway.errors import Kind, RequestError

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "unsupported_media_type",
}


_STATUS: dict[Kind, int] = {
    "invalid": 400,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "internal": 500,
    "unavailable": 503,
    "full": 507,
}
_KINDS = {status: kind for kind, status in _STATUS.items()}


class ApiError(RequestError):
    """A request error with its HTTP status and headers."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after: int | None = None,
        reason: FinishReason | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        kind = _KINDS.get(status, "invalid" if status < 500 else "internal")
        super().__init__(kind, code, message, param, reason or ("rejected" if status < 500 else "error"), retry_after)
        self.status = status
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    @property
    def error(self) -> dict[str, str | None]:
        """The ``error`` object of the body."""
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    @property
    def body(self) -> bytes:
        fields = {"status": self.status, "message": self.message, "detail": self.message, "error": self.error}
        return msgspec.json.encode(fields)

    def response(self) -> web.Response:
        return web.Response(status=self.status, body=self.body, content_type="application/json", headers=self.headers)


def draining() -> ApiError:
    """The error for new requests while the server shuts down."""
    return ApiError(503, "draining", "the server is shutting down", retry_after=5, reason="rejected")


def invalid(param: str, problem: str) -> ApiError:
    """The error for a field with a value that can't be accepted."""
    return ApiError(400, "invalid_value", f"{param}: {problem}", param)


def from_failure(failure: Failure, reason: FinishReason | None = None) -> ApiError:
    """The error for a failure that the engine reports."""
    param = "text" if failure.code == "context_length_exceeded" else None
    return ApiError(
        failure.status, failure.code, failure.message, param, retry_after=failure.retry_after, reason=reason
    )


def as_api_error(error: RequestError) -> ApiError:
    """Convert an error of an inner room to one with an HTTP status."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineError):
        failure = error.failure
        return ApiError(failure.status, error.code, error.message, error.param, retry_after=failure.retry_after)
    status, retry_after = _STATUS[error.kind], error.retry_after
    return ApiError(status, error.code, error.message, error.param, retry_after=retry_after, reason=error.reason)


def from_http(error: web.HTTPException) -> ApiError:
    """The error for what the HTTP library refuses: unknown routes, other methods, bodies that are too large."""
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    return ApiError(error.status, _CODES.get(error.status, "http_error"), error.reason, headers=headers)


def no_route(method: str, path: str) -> ApiError:
    """The error for a path without a route."""
    return ApiError(404, "not_found", f"there is no {method} {path}; GET /openapi.json lists the routes")


def wrong_method(method: str, path: str, allowed: str) -> ApiError:
    """The error for a method that a route lacks. ``allowed``: the methods it has, comma-separated."""
    message = f"{path} takes {allowed}, not {method}"
    return ApiError(405, "method_not_allowed", message, headers={"Allow": allowed})
