"""Errors as clients see them: a status and one JSON body that the SDKs of both API families can read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from common.messages import Failure, FinishReason

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "unsupported_media_type",
}


class ApiError(Exception):
    """A request that ends with an error. ``param`` names the field at fault; ``reason`` is how the request ended."""

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
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param
        self.reason: FinishReason = reason or ("rejected" if status < 500 else "error")
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    @property
    def error(self) -> dict[str, str | None]:
        """The ``error`` object of the body."""
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    def rename(self, names: Mapping[str, str]) -> None:
        """Name the field at fault as another API does."""
        name = names.get(self.param or "")
        if name is not None and self.param is not None:
            if self.message.startswith(self.param):
                self.message = name + self.message.removeprefix(self.param)
            self.param = name

    @property
    def body(self) -> bytes:
        fields = {"status": self.status, "message": self.message, "detail": self.message, "error": self.error}
        return msgspec.json.encode(fields)

    def response(self) -> web.Response:
        return web.Response(status=self.status, body=self.body, content_type="application/json", headers=self.headers)


def draining() -> ApiError:
    """The server takes nothing new: another one, or this one started again, will."""
    return ApiError(503, "draining", "the server is shutting down", retry_after=5, reason="rejected")


def invalid(param: str, problem: str) -> ApiError:
    """A field that can't be accepted."""
    return ApiError(400, "invalid_value", f"{param}: {problem}", param)


def from_failure(failure: Failure, reason: FinishReason | None = None) -> ApiError:
    """What the engine says went wrong."""
    param = "text" if failure.code == "context_length_exceeded" else None
    return ApiError(
        failure.status, failure.code, failure.message, param, retry_after=failure.retry_after, reason=reason
    )


def from_http(error: web.HTTPException) -> ApiError:
    """What the HTTP library refuses: unknown routes, other methods, bodies that are too large."""
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
    return ApiError(error.status, _CODES.get(error.status, "http_error"), error.reason, headers=headers)
