"""``python -m deploy.group.prometheus --run-dir DIR``: becomes the Prometheus beside a group.

It finds what it needs in the run directory: its configuration and rules (links to ``deploy/observe/prometheus``), and
``targets.json``, in which the gateway names its address. What it stores lies there too.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from common import command_line
from common import config as configuration
from common.config import ROOT, Config, ConfigError
from common.files import write_atomically
from deploy.group import ports
from deploy.group.supervision import OBSERVER, die_with_parent

PROGRAM = "prometheus"
HOST = "127.0.0.1"
FILES = ROOT / "deploy" / "observe" / "prometheus"
DASHBOARDS = ROOT / "deploy" / "observe" / "grafana"
RETENTION = "7d"
MOST_STORED = "1GB"


def check(config: Config) -> None:
    """Check that Prometheus can start.

    Raises:
        ConfigError: it is not installed, or its port is taken.
    """
    port = config.supervisor.prometheus_port
    if not port:
        return
    if shutil.which(PROGRAM) is None:
        raise ConfigError(
            f"--observe: {PROGRAM} is not on the PATH. Install it with 'apt install prometheus', 'brew install "
            "prometheus', or from prometheus.io/download"
        )
    if reason := ports.objection(HOST, port):
        raise ConfigError(
            f"--observe: Prometheus can't listen on port {port} ({reason}). Perhaps one runs already, as Debian's "
            "package starts it: stop that one (systemctl disable --now prometheus), or name a port: --observe PORT"
        )


def greeting(config: Config) -> str:
    """Return the address of the group's Prometheus for the user; empty without one."""
    port = config.supervisor.prometheus_port
    return f"Prometheus is at http://{HOST}:{port}; what Grafana needs is in {DASHBOARDS}" if port else ""


def prepare(run_dir: Path) -> None:
    """Link configuration and rules into the run directory."""
    for name in ("prometheus.yml", "rules"):
        link = run_dir / name
        link.unlink(missing_ok=True)
        link.symlink_to(FILES / name)


def command(run_dir: Path, port: int) -> list[str]:
    """Build the command line of Prometheus."""
    return [
        PROGRAM,
        f"--config.file={run_dir / 'prometheus.yml'}",
        f"--storage.tsdb.path={run_dir / OBSERVER}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--storage.tsdb.retention.size={MOST_STORED}",
        f"--web.listen-address={HOST}:{port}",
    ]


def main() -> None:
    described = command_line.process_command("The Prometheus of a Shoal group.", OBSERVER)
    options = command_line.parse(described, "python -m deploy.group.prometheus")
    run_dir = options["run_dir"]
    config = configuration.load(run_dir)
    die_with_parent()
    prepare(run_dir)
    write_atomically(run_dir / f"{options['name']}.pid", f"{os.getpid()}\n".encode())
    os.execvp(PROGRAM, command(run_dir, config.supervisor.prometheus_port))


if __name__ == "__main__":
    main()
