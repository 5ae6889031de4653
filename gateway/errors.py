"""Errors of a request, independent of the protocol that reports them.

The inner rooms raise these; ``gateway.http.errors`` turns them into a status and a body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from common.messages import FinishReason

Kind: TypeAlias = Literal["invalid", "forbidden", "not_found", "conflict", "internal", "unavailable", "full"]


class RequestError(Exception):
    """A request that can't be served.

    ``code`` names the error for programs, ``param`` the field at fault; ``reason`` is the request's finish reason;
    after ``retry_after`` seconds another attempt may succeed.
    """

    def __init__(
        self,
        kind: Kind,
        code: str,
        message: str,
        param: str | None = None,
        reason: FinishReason = "rejected",
        retry_after: int | None = None,
    ) -> None:
        message = message.encode(errors="backslashreplace").decode()  # it may quote a header that is not UTF-8
        super().__init__(message)
        self.kind, self.code, self.message, self.param = kind, code, message, param
        self.retry_after = retry_after
        self.reason: FinishReason = reason

    def rename(self, names: Mapping[str, str]) -> None:
        """Call the field at fault by another API's name for it."""
        name = names.get(self.param or "")
        if name is not None and self.param is not None:
            if self.message.startswith(self.param):
                self.message = name + self.message.removeprefix(self.param)
            self.param = name


class InvalidFieldError(RequestError):
    """A field with a value that can't be accepted."""

    def __init__(self, param: str, problem: str) -> None:
        super().__init__("invalid", "invalid_value", f"{param}: {problem}", param)


class SlowClientError(Exception):
    """The client read nothing for too long."""
