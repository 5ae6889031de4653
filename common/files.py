"""Atomic writing of files, and checked directories."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a restart after a crash, finds either the old content or the new."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the error at hand says more
            os.unlink(name)
        raise


def make_writable(directory: Path) -> None:
    """Create a directory where there is none, and check that files can be written there.

    Raises:
        OSError: naming the directory.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OSError(f"{directory} can't be written to ({error.strerror})") from None


def make_private(directory: Path) -> None:
    """Create a directory, or take it from others if it is this user's: its sockets command the group.

    Raises:
        OSError: it can't be created.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        directory.chmod(0o700)
