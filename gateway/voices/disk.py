"""Errors of the disk that holds the voices, as clients see them."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.http.errors import ApiError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
RETRY_SECONDS = 60  # a disk is seldom repaired sooner

log = logging.getLogger(__name__)


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Run file and database writes below ``directory``.

    Raises:
        ApiError: 507: the disk is full; 503: it can't be written.
    """
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        log.error("voices can't be written", extra={"directory": str(directory), "cause": str(error)})
        if _is_full(error):
            message = f"the disk that holds the voices is full: {directory}"
            raise ApiError(507, "insufficient_storage", message, retry_after=RETRY_SECONDS) from error
        cause = (error.strerror if isinstance(error, OSError) else None) or str(error)
        message = f"the disk that holds the voices can't be written: {directory}: {cause}"
        raise ApiError(503, "storage_unavailable", message, retry_after=RETRY_SECONDS) from error


def _is_full(error: OSError | sqlite3.OperationalError) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL
