"""systemd's notification protocol: tells the service manager that a process is ready, stopping or alive.

Each message is one datagram to the socket that ``NOTIFY_SOCKET`` names; without one, nothing is said.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

READY = "READY=1"
STOPPING = "STOPPING=1"
ALIVE = "WATCHDOG=1"
PINGS_PER_LIMIT = 4  # of the watchdog


def tell(state: str) -> None:
    """Send a state, if a service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux' abstract namespace
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect(address)
        sender.send(state.encode())


class Watchdog:
    """Tells the service manager that a loop is alive. The loop calls :meth:`ping`.

    ``limit``: seconds without a word after which the manager ends this process; 0: it does not watch.
    """

    def __init__(self) -> None:
        watched = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.limit = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6 if watched else 0.0
        self._next = 0.0

    def ping(self) -> None:
        """Report the loop as alive; sends a datagram only when one is due."""
        now = time.monotonic()
        if self.limit and now >= self._next:
            self._next = now + self.limit / PINGS_PER_LIMIT
            tell(ALIVE)
