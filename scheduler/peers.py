"""Connected peers: registration, liveness, and the group's state that gateways receive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from common.messages import ArWorkerHello, GatewayHello, GroupState, Role, VocoderAddress, VocoderWorkerHello

Hello = GatewayHello | ArWorkerHello | VocoderWorkerHello
ROLES: dict[type, Role] = {
    GatewayHello: "gateway",
    ArWorkerHello: "ar_worker",
    VocoderWorkerHello: "vocoder_worker",
}


class Peer(NamedTuple):
    incarnation: str
    name: str
    role: Role
    audio_endpoint: str | None


class Peers:
    """The peers by incarnation, and the state of each worker by name.

    ``workers``: names of the workers without which the group is not ready. Others may join from elsewhere and leave.
    """

    def __init__(self, workers: list[str]) -> None:
        self._peers: dict[str, Peer] = {}
        self._heard: dict[str, float] = {}  # incarnation to the time of its last message
        self._gone: dict[str, float] = {}  # the same by name, of lost workers
        self._workers = frozenset(workers)
        self._states = dict.fromkeys(workers, "starting")

    def __contains__(self, incarnation: str) -> bool:
        return incarnation in self._peers

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))  # a copy: peers may leave meanwhile

    def register(self, incarnation: str, hello: Hello, now: float) -> Peer | None:
        """Add a peer; returns the one of the same name that it replaces, if any."""
        role = ROLES[type(hello)]
        former = next((peer for peer in self if peer.name == hello.name and peer.role == role), None)
        endpoint = hello.audio_endpoint if isinstance(hello, VocoderWorkerHello) else None
        self._peers[incarnation] = Peer(incarnation, hello.name, role, endpoint)
        self._heard[incarnation] = now
        self._gone.pop(hello.name, None)
        if role != "gateway":
            self._states[hello.name] = "ready"
        return former

    def role(self, incarnation: str) -> Role:
        return self._peers[incarnation].role

    def heard(self, incarnation: str, now: float) -> None:
        self._heard[incarnation] = now

    def hear_all(self, now: float) -> None:
        """Count every peer's silence from now on."""
        self._heard = dict.fromkeys(self._heard, now)

    def silent(self, now: float, bound: float) -> list[Peer]:
        """Peers that have sent nothing for ``bound`` seconds."""
        return [peer for peer in self if now - self._heard[peer.incarnation] > bound]

    def ages(self, now: float) -> dict[str, float]:
        """Seconds since each peer was heard, by name, including lost ones. Safe to call from another thread."""
        heard = list(self._gone.items()) + [(peer.name, self._heard.get(peer.incarnation, now)) for peer in self]
        return {name: max(0.0, now - last) for name, last in heard}

    def leaving(self, incarnation: str) -> None:
        self._note(self._peers[incarnation].name, "leaving")

    def remove(self, incarnation: str, state: str) -> None:
        """Remove a peer; the name of a required worker keeps a state until it registers again."""
        peer = self._peers.pop(incarnation)
        heard = self._heard.pop(incarnation)
        if peer.name in self._workers:
            self._gone[peer.name] = heard
        if peer.role != "gateway" and all(other.name != peer.name for other in self):
            self._note(peer.name, state)

    def _note(self, worker: str, state: str) -> None:
        if worker in self._workers:
            self._states[worker] = state
        else:
            self._states.pop(worker, None)

    def group_state(self, draining: bool) -> GroupState:
        states = dict(self._states)
        if draining:
            states["scheduler"] = "draining"
        vocoders = [
            VocoderAddress(peer.name, peer.incarnation, peer.audio_endpoint) for peer in self if peer.audio_endpoint
        ]
        return GroupState(all(state == "ready" for state in states.values()), states, vocoders)
