"""What every process of the group does first: configuration, logs, pid file and metrics."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from common import config as configuration
from common import logs, metrics
from common.config import Config
from common.files import write_atomically
from common.transport import new_incarnation


def wake_on_signals(descriptor: int) -> None:
    """Have TERM and INT do no more than write their number to a non-blocking descriptor. From the main thread."""
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)


class Process(NamedTuple):
    """One process of the group, started."""

    name: str
    config: Config
    run_dir: Path
    incarnation: str
    registry: CollectorRegistry
    parent: int

    def orphaned(self) -> bool:
        """Whether whoever started this process has died."""
        return os.getppid() != self.parent


def start(role: str) -> Process:
    """Start as ``role``, from the command line ``--run-dir DIR [--name NAME]``.

    A second worker of a role runs under a name of its own; pid, metrics port and log lines carry the name.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {role}", description=f"The {role} process of a Shoal group.")
    parser.add_argument("--run-dir", type=Path, required=True, help="run directory, with its config.json")
    parser.add_argument("--name", default=role, help="name of this process within the group (default: %(default)s)")
    arguments = parser.parse_args()
    parent = os.getppid()
    config = configuration.load(arguments.run_dir)
    logs.setup(arguments.name, config.log.level)
    registry = metrics.new_registry()
    metrics.serve(registry, arguments.run_dir, arguments.name)
    write_atomically(arguments.run_dir / f"{arguments.name}.pid", f"{os.getpid()}\n".encode())
    return Process(arguments.name, config, arguments.run_dir, new_incarnation(), registry, parent)
