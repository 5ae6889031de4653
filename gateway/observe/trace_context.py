"""The trace that a request belongs to: that of its caller (W3C Trace Context), or one of its own."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """``trace_id``: 32 hexadecimal digits; ``parent``: 16, of the caller's span, "" without one; ``flags``: its own."""

    trace_id: str
    parent: str = ""
    flags: int = 0


def of_header(traceparent: str) -> TraceContext:
    """The context in a ``traceparent`` header, or a new one where that is missing or makes no sense."""
    match = _PARENT.fullmatch(traceparent.strip())
    if match is None or (match[1] == "00" and match[5]):  # only later versions may go on
        return TraceContext(uuid.uuid4().hex)
    return TraceContext(match[2], match[3], int(match[4], 16))
