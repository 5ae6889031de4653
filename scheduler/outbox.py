"""Outgoing messages of the core, collected until the shell sends them."""

from __future__ import annotations

from typing import NamedTuple

from common.messages import AnyBody, Array


class Outgoing(NamedTuple):
    """A message to send. ``peer``: the receiver's incarnation."""

    peer: str
    body: AnyBody
    arrays: list[Array]


class Outbox:
    """Messages in the order in which they were added."""

    def __init__(self) -> None:
        self._messages: list[Outgoing] = []

    def send(self, peer: str, body: AnyBody, arrays: list[Array] | None = None) -> None:
        self._messages.append(Outgoing(peer, body, arrays or []))

    def take(self) -> list[Outgoing]:
        """Return all messages and empty the outbox."""
        messages, self._messages = self._messages, []
        return messages
