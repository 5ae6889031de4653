"""What processes tell systemd, heard at a real datagram socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import notify


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The service manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def heard(manager: socket.socket) -> list[str]:
    """What has come so far."""
    messages = []
    manager.setblocking(False)
    try:
        while True:
            messages.append(manager.recv(100).decode())
    except BlockingIOError:
        return messages


def test_a_state_is_one_datagram(manager: socket.socket) -> None:
    notify.tell(notify.READY)
    notify.tell(notify.STOPPING)
    assert heard(manager) == ["READY=1", "STOPPING=1"]


def test_an_abstract_socket_is_reached_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"shoal-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        notify.tell(notify.READY)
        assert heard(listener) == ["READY=1"]


def test_without_a_manager_or_with_one_that_is_gone_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify.tell(notify.READY)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify.tell(notify.READY)


def test_the_watchdog_hears_a_few_words_per_limit_however_often_the_loop_turns(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    watchdog = notify.Watchdog()
    until = time.monotonic() + 0.4
    while time.monotonic() < until:
        watchdog.ping()
    assert 2 <= len(heard(manager)) <= notify.PINGS_PER_LIMIT + 1


def test_a_watchdog_meant_for_another_process_hears_nothing(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "400000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    watchdog = notify.Watchdog()
    watchdog.ping()
    assert watchdog.limit == 0
    assert heard(manager) == []
