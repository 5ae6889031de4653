"""What the core has to say, until the shell asks for it."""

from __future__ import annotations

from typing import NamedTuple

from common.messages import AnyBody, Array


class Outgoing(NamedTuple):
    """A message to send: ``peer`` is an incarnation."""

    peer: str
    body: AnyBody
    arrays: list[Array]


class Outbox:
    """Messages in the order in which they were written; taken whenever the core has planned."""

    def __init__(self) -> None:
        self._messages: list[Outgoing] = []

    def send(self, peer: str, body: AnyBody, arrays: list[Array] | None = None) -> None:
        self._messages.append(Outgoing(peer, body, arrays or []))

    def take(self) -> list[Outgoing]:
        """All there is, which is then no longer here."""
        messages, self._messages = self._messages, []
        return messages
