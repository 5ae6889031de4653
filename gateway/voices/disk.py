"""Errors of the disk that holds the voices."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.errors import RequestError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RETRY_SECONDS = 60  # a disk is seldom repaired sooner

log = logging.getLogger(__name__)


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Run file and database writes below ``directory``.

    Raises:
        RequestError: the disk is full, or it can't be written.
    """
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        log.error("voices can't be written", extra={"directory": str(directory), "cause": str(error)})
        if _is_full(error):
            message = f"the disk that holds the voices is full: {directory}"
            raise RequestError("full", "insufficient_storage", message, None, "error", RETRY_SECONDS) from error
        cause = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"the disk that holds the voices can't be written: {directory}: {cause}"
        raise RequestError("unavailable", "storage_unavailable", message, None, "error", RETRY_SECONDS) from error


def _is_full(error: OSError | sqlite3.OperationalError) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL
