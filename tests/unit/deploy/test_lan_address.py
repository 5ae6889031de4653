"""The address that others on the network use."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from deploy.group import ports


class _Probe(socket.socket):
    error = False

    def connect(self, address: object) -> None:
        if self.error:
            raise OSError("no route")

    def getsockname(self) -> tuple[str, int]:
        return self.name, 0

    name = "192.168.7.9"


@pytest.mark.parametrize(
    ("name", "error", "expected"),
    [("192.168.7.9", False, "192.168.7.9"), ("127.0.0.1", False, None), ("10.0.0.2", True, None)],
)
def test_the_address_is_that_of_the_route_or_none(
    monkeypatch: pytest.MonkeyPatch, name: str, error: bool, expected: str | None
) -> None:
    monkeypatch.setattr(_Probe, "name", name)
    monkeypatch.setattr(_Probe, "error", error)
    monkeypatch.setattr(ports.socket, "socket", _Probe)
    assert ports.lan_address() == expected


def test_here_it_is_an_address_or_none() -> None:
    address = ports.lan_address()
    assert address is None or not ipaddress.ip_address(address).is_loopback
