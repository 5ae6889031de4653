"""Logging: one JSON object per line on stderr. The text of a request is never logged above debug level.

Each line has ``ts``, ``level``, ``process``, ``logger`` and ``msg``; what is logged while a request is served has its
``request_id`` and ``trace_id`` as well.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from contextvars import ContextVar
from types import TracebackType

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_request: ContextVar[dict[str, str] | None] = ContextVar("request", default=None)

log = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; its ``extra`` fields become fields of the object."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"ts": stamp, "level": record.levelname.lower(), "process": self.process, "logger": record.name}
        line["msg"] = record.getMessage()
        line |= _request.get() or {}
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Throttle:
    """Limits a repeated log line: due the first time, and after that once in ``EVERY`` seconds."""

    EVERY = 10.0

    def __init__(self) -> None:
        self._silent_until = 0.0

    def due(self) -> bool:
        """Whether to log this time."""
        now = time.monotonic()
        if now < self._silent_until:
            return False
        self._silent_until = now + self.EVERY
        return True


def bind(request_id: str, trace_id: str) -> None:
    """Name a request in all further log lines of this task and of the tasks and threads that it starts."""
    _request.set({"request_id": request_id, "trace_id": trace_id})


def setup(process: str, level: str) -> None:
    """Set up logging as ``process``. Python's warnings and uncaught exceptions are logged, too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda hook: _log_uncaught(hook.exc_type, hook.exc_value, hook.exc_traceback)


def _log_uncaught(kind: type[BaseException], error: BaseException | None, traceback: TracebackType | None) -> None:
    if error is not None and not issubclass(kind, KeyboardInterrupt | SystemExit):
        log.critical("not caught", exc_info=(kind, error, traceback))
