"""Connections of a gateway to other processes of the group: a DEALER each, served by the event loop.

The loop watches the socket's file descriptor, which signals changes only, so every send is followed by another look at
the incoming side.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from common import transport
from common.messages import AnyBody, Array, Message, MessageError, pack, unpack
from common.transport import CONNECTED, Context, PeerGoneError

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 1.0  # after a mismatch of encryption

Handler: TypeAlias = Callable[["Link", Message], None]


class Link:
    """One connection. ``on_connection`` hears of its begin (True) and its loss, ``on_message`` of each message."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        server: str,
        incarnation: str,
        on_connection: Callable[[Link, bool], None],
        on_message: Handler,
    ) -> None:
        self.peer = ""  # incarnation of the other side, once known
        self._incarnation = incarnation
        self._on_connection, self._on_message = on_connection, on_message
        self._socket, self._monitor = context.dealer(endpoint, incarnation, server)
        self._loop = asyncio.get_running_loop()
        self._own = (
            contextvars.copy_context()
        )  # without that of a request that sends: messages received belong to others
        self._loop.add_reader(self._socket.fileno(), self._receive)
        self._loop.add_reader(self._monitor.socket.fileno(), self._watch)
        self._loop.call_soon(self._watch)

    def send(self, body: AnyBody, arrays: Sequence[Array] = ()) -> None:
        """Send without waiting.

        Raises:
            PeerGoneError: there is no connection, or not any more.
        """
        if self._socket.closed:
            raise PeerGoneError
        transport.send(self._socket, pack(body, arrays, source=self._incarnation, target=self.peer))
        self._loop.call_soon(self._receive, context=self._own)

    def try_send(self, body: AnyBody) -> None:
        """Send, unless the peer is lost, which is noticed separately."""
        with contextlib.suppress(PeerGoneError):
            self.send(body)

    def close(self) -> None:
        """Read what has come, then close."""
        self._receive()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_reader(self._monitor.socket.fileno())
        self._socket.disable_monitor()
        self._monitor.socket.close()
        self._socket.close()

    def _watch(self) -> None:
        if self._socket.closed:
            return
        for event in self._monitor.events():
            self._on_connection(self, event == CONNECTED)
        if self._monitor.given_up:
            self._loop.call_later(RECONNECT_SECONDS, self._monitor.reconnect)
        self._receive()

    def _receive(self) -> None:
        while not self._socket.closed and (frames := transport.receive(self._socket)) is not None:
            try:
                message = unpack(frames)
            except MessageError:
                log.exception("dropped a message")
                continue
            if message.target != self._incarnation:
                continue
            try:
                self._on_message(self, message)
            except Exception:  # the messages after it are for other requests
                log.exception("a message failed", extra={"body": type(message.body).__name__})
