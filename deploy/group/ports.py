"""Checks before the start that servers can listen at their addresses."""

from __future__ import annotations

import socket

ALL_ADDRESSES = "::"  # of both families


def objection(host: str, port: int) -> str | None:
    """Return the system's reason why an address can't be bound; None if it can."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, _, _, address in addresses:
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != ALL_ADDRESSES)
                probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return None


def lan_address() -> str | None:
    """Return this machine's IPv4 address on the network that it reaches others by; None without one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation; the route is looked up, no packet leaves
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address
