"""Start of a process of the group: configuration, logs, pid file and metrics."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from common import command_line, logs, metrics, notify, transport
from common import config as configuration
from common.config import Config, ConfigError
from common.files import write_atomically
from common.key_directory import CurveKeys
from common.metrics import Page, ProcessMetrics
from common.transport import new_incarnation

log = logging.getLogger(__name__)


SWITCH_INTERVAL = 0.0005  # seconds; Python's default of 5 ms lets one thread keep another waiting for too long


def wake_on_signals(descriptor: int) -> None:
    """Make TERM and INT write their number to a non-blocking descriptor and do nothing else. Main thread only."""
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)


def begin_to_serve() -> None:
    """Tell the service manager that the process is ready, and freeze the garbage collector's present objects.

    They live as long as the process, and scanning them would stop everything for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()
    notify.tell(notify.READY)


class Process(NamedTuple):
    """One process of the group, started."""

    name: str
    config: Config
    run_dir: Path
    incarnation: str
    registry: CollectorRegistry
    pages: dict[str, Page]  # at the port of the metrics
    parent: int
    curve_keys: CurveKeys | None = None  # of an encrypted group

    def orphaned(self) -> bool:
        """Whether the process that started this one has died."""
        return os.getppid() != self.parent


def start(role: str) -> Process:
    """Start as ``role``, from the command line ``--run-dir DIR [--name NAME]``.

    A second worker of a role runs under a name of its own; pid, metrics port, log lines and key carry the name.
    An unusable configuration is logged and ends the process.
    """
    command = command_line.process_command(f"The {role} process of a Shoal group.", role)
    options = command_line.parse(command, f"python -m {role}")
    run_dir, name = options["run_dir"], options["name"]
    parent = os.getppid()
    sys.setswitchinterval(SWITCH_INTERVAL)
    config = configuration.load(run_dir)
    logs.setup(name, config.log.level)
    try:
        keys = transport.load_curve_keys(config, name)
    except ConfigError as error:
        log.error("can't start: %s", error)
        sys.exit(1)
    registry = metrics.new_registry()
    ProcessMetrics(registry, config.model_dir.name, _earlier_starts(run_dir, name))
    pages: dict[str, Page] = {}
    metrics.serve(registry, run_dir, name, pages)
    write_atomically(run_dir / f"{name}.pid", f"{os.getpid()}\n".encode())
    return Process(name, config, run_dir, new_incarnation(), registry, pages, parent, keys)


def _earlier_starts(run_dir: Path, name: str) -> int:
    """Earlier starts of the process in its run directory; counts this one."""
    path = run_dir / f"{name}.starts"
    try:
        earlier = int(path.read_text())
    except FileNotFoundError:
        earlier = 0
    write_atomically(path, str(earlier + 1).encode())
    return earlier
