"""Sockets: a missing peer is an error at once, and connections and losses are heard of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from common import transport
from common.messages import Ping, pack, unpack
from common.transport import CONNECTED, DISCONNECTED, Context, PeerGoneError


@pytest.fixture
def context() -> Iterator[Context]:
    context = Context()
    yield context
    context.close()


def eventually(read, seconds: float = 5.0):  # type: ignore[no-untyped-def]
    """The first truthy value of ``read()``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := read():
            return value
        time.sleep(0.005)
    raise AssertionError("nothing came")


def refused(dealer: zmq.Socket[bytes]) -> bool:
    try:
        transport.send(dealer, [b"x"])
    except PeerGoneError:
        return True
    return False


def test_a_message_reaches_the_peer_it_names(context: Context, tmp_path: Path) -> None:
    endpoint = transport.ipc_endpoint(tmp_path, "s")
    router, _ = context.router(endpoint)
    dealer, monitor = context.dealer(endpoint, "me", "s")
    assert eventually(monitor.events) == [CONNECTED]
    transport.send(dealer, pack(Ping(), source="me", target=""))
    frames = eventually(lambda: transport.receive(router))
    assert unpack(frames[1:]).body == Ping()
    transport.send(router, pack(Ping(), source="scheduler", target="me"), "me")
    assert unpack(eventually(lambda: transport.receive(dealer))).source == "scheduler"


def test_a_missing_peer_is_an_error_at_once(context: Context, tmp_path: Path) -> None:
    router, _ = context.router(transport.ipc_endpoint(tmp_path, "s"))
    with pytest.raises(PeerGoneError):
        transport.send(router, [b"x"], "nobody")


def test_a_peer_that_has_gone_is_an_error_and_an_event(context: Context, tmp_path: Path) -> None:
    endpoint = transport.ipc_endpoint(tmp_path, "s")
    other = Context()
    router, _ = other.router(endpoint)
    dealer, monitor = context.dealer(endpoint, "me", "s")
    eventually(monitor.events)
    transport.send(dealer, [b"hello"])
    eventually(lambda: transport.receive(router))
    other.close()
    assert DISCONNECTED in eventually(monitor.events)
    assert eventually(lambda: refused(dealer))


def test_a_run_directory_too_deep_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run directory"):
        transport.ipc_endpoint(tmp_path / ("d" * 100), "scheduler")
