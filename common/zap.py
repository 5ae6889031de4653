"""Authentication: answers ZeroMQ's authentication requests (RFC 27, ZAP) of one context.

A thread that sleeps until a peer has proved that it holds a key. It ends with its context.
"""

from __future__ import annotations

import logging
import threading

import zmq

from common.key_directory import CurveKeys
from common.logs import Throttle

ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = "shoal"
VERSION = b"1.0"
ACCEPTED = b"200"
# A temporary refusal: the peer gets no reason and tries again, so that a key can be added meanwhile.
REFUSED = b"300"

log = logging.getLogger(__name__)


class KeyCheck(threading.Thread):
    """Accepts peers whose key is known. Start it before the first socket of the context is bound."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: CurveKeys) -> None:
        super().__init__(name="key check", daemon=True)
        self._keys = keys
        self._refusals = Throttle()
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ENDPOINT)

    def run(self) -> None:
        try:
            while True:
                self._socket.send_multipart(self._answer(self._socket.recv_multipart()))
        except zmq.ContextTerminated:
            pass
        finally:
            self._socket.close()

    def _answer(self, request: list[bytes]) -> list[bytes]:
        """The reply; the owner's name becomes the user id of all messages of the connection."""
        _, number, _, address, _, mechanism, *credentials = request
        owner = self._keys.owner(credentials[0]) if mechanism == b"CURVE" else None
        if owner is not None:
            return [VERSION, number, ACCEPTED, b"OK", owner.encode(), b""]
        if self._refusals.due():
            log.warning("refused a peer whose key is not known", extra={"address": address.decode(errors="replace")})
        return [VERSION, number, REFUSED, b"unknown key", b"", b""]
