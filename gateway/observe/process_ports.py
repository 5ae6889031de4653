"""Queries other processes of the group at their loopback metrics ports."""

from __future__ import annotations

import http.client
from pathlib import Path

TIMEOUT = 1.0  # seconds


def fetch(port_file: Path, path: str) -> bytes | None:
    """Return a process's answer, or None. Blocks on sockets: call it from a thread."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", int(port_file.read_text()), timeout=TIMEOUT)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.read() if reply.status == 200 else None
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException):
        return None
