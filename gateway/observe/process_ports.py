"""Asking other processes of the group at the loopback port where each tells of itself."""

from __future__ import annotations

import http.client
from pathlib import Path

TIMEOUT = 1.0  # seconds


def fetch(port_file: Path, path: str) -> bytes | None:
    """What a process answers; None if it doesn't. Waits for sockets: call it from a thread."""
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
