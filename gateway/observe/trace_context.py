"""W3C Trace Context: the trace of a request's caller, or a new one."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """A trace context. ``trace_id``: 32 hex digits; ``parent``: the caller's span, 16 of them, or ""; ``flags``."""

    trace_id: str
    parent: str = ""
    flags: int = 0


def of_header(traceparent: str) -> TraceContext:
    """Parse a ``traceparent`` header; a new context if it is missing or invalid."""
    match = _PARENT.fullmatch(traceparent.strip())
    if match is None or (match[1] == "00" and match[5]):  # only later versions may go on
        return TraceContext(uuid.uuid4().hex)
    return TraceContext(match[2], match[3], int(match[4], 16))
