"""The inbox between two threads, and files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from common.files import make_private, write_atomically
from common.inbox import Inbox, InboxFullError


def test_the_reader_sleeps_until_there_is_work() -> None:
    inbox: Inbox[int] = Inbox(4)
    got: list[int] = []
    reader = threading.Thread(target=lambda: got.append(inbox.get()))
    reader.start()
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1, "waiting costs no processor time"
    assert not got
    inbox.put(7)
    reader.join(timeout=5)
    assert got == [7]


def test_how_long_the_reader_has_been_at_work() -> None:
    inbox: Inbox[int] = Inbox(4)
    assert inbox.busy_seconds() == 0
    inbox.put(1)
    inbox.get()
    time.sleep(0.05)
    assert inbox.busy_seconds() >= 0.05
    inbox.goes_on()
    assert inbox.busy_seconds() < 0.05
    reader = threading.Thread(target=inbox.get)
    reader.start()
    time.sleep(0.05)
    assert inbox.busy_seconds() == 0, "it waits"
    inbox.put(2)
    reader.join(timeout=5)


def test_order_is_kept_and_the_bound_is_an_error() -> None:
    inbox: Inbox[int] = Inbox(3)
    for item in (1, 2, 3):
        inbox.put(item)
    with pytest.raises(InboxFullError):
        inbox.put(4)
    assert [inbox.get(), inbox.get(), inbox.get()] == [1, 2, 3]
    assert len(inbox) == 0


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [None, 0o777, 0o755, 0o750, 0o700])
def test_a_private_directory_is_its_owners_only_whatever_the_umask(tmp_path: Path, mode: int | None) -> None:
    directory = tmp_path / "run" / "shoal"
    if mode is not None:
        directory.mkdir(parents=True)
        directory.chmod(mode)
    umask = os.umask(0)
    try:
        make_private(directory)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
