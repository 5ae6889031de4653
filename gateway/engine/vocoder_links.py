"""Connections of a gateway to the vocoder workers, over which sound comes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from common.config import ConfigError
from common.messages import Array, Attach, Attached, Audio, GroupState, Message, VocoderAddress
from common.transport import Context
from gateway.engine.link import Link

log = logging.getLogger(__name__)


class VocoderLinks:
    """One connection for each vocoder worker of the group, by incarnation.

    ``attached``: those whose sound can be received. ``on_attached`` is called for each of them, again after its
    connection was lost; ``on_audio`` for each message of sound.
    """

    def __init__(
        self,
        context: Context,
        incarnation: str,
        on_attached: Callable[[str], None],
        on_audio: Callable[[str, Audio, list[Array]], None],
    ) -> None:
        self.attached: set[str] = set()
        self._context, self._incarnation = context, incarnation
        self._on_attached, self._on_audio = on_attached, on_audio
        self._links: dict[str, Link] = {}

    def update(self, state: GroupState) -> list[str]:
        """Connect to workers that are new, and leave those that are lost; returns the lost ones."""
        lost = list(set(self._links) - {address.incarnation for address in state.vocoders})
        for vocoder in lost:
            self._links.pop(vocoder).close()
            self.attached.discard(vocoder)
        for address in state.vocoders:
            if address.incarnation not in self._links:
                self._connect(address)
        return lost

    def attach_again(self, vocoder: str) -> None:
        """The worker could not reach this gateway. Without a connection, the next one attaches anyway."""
        if vocoder in self._links:
            self._links[vocoder].try_send(Attach())

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def _connect(self, address: VocoderAddress) -> None:
        """Connect to a worker. One whose key is not known here leaves this gateway unready."""
        server, mine = address.name, self._incarnation
        try:
            link = Link(self._context, address.endpoint, server, mine, self._on_connection, self._on_message)
        except ConfigError as error:
            log.error("not connected to a vocoder worker: %s", error)
            return
        link.peer = address.incarnation
        self._links[address.incarnation] = link

    def _on_connection(self, link: Link, connected: bool) -> None:
        if connected:
            link.try_send(Attach())
        elif link.peer in self.attached:
            log.warning("lost the connection to a vocoder worker", extra={"vocoder": link.peer})
            self.attached.discard(link.peer)

    def _on_message(self, link: Link, message: Message) -> None:
        if message.source != link.peer:
            return
        if isinstance(message.body, Attached):
            self.attached.add(link.peer)
            self._on_attached(link.peer)
        elif isinstance(message.body, Audio):
            self._on_audio(link.peer, message.body, message.arrays)
