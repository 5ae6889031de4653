"""Supervision: supervisord's configuration for a process group.

Stop order, one after another: gateway (its streams end), scheduler (which lets the workers go), AR worker, vocoder
worker. A process that dies is started again without limit; one that dies while starting, after a pause that grows.
"""

from __future__ import annotations

import ctypes
import math
import signal
import sys
from pathlib import Path

from common.config import ROOT, Config, worker_names

CONFIG_FILE = "supervisord.conf"
WITHOUT_LIMIT = 1_000_000_000
LOG_BYTES = 10 * 1024 * 1024
OBSERVER = "prometheus"


def processes(config: Config) -> list[tuple[str, str]]:
    """List name and module of each process in start order; the stop order is the reverse."""
    return [*worker_names(config), ("scheduler", "scheduler"), ("gateway", "gateway")]


def programs(config: Config) -> list[tuple[str, str]]:
    """List all supervised programs, with Prometheus first where configured, so that it stops last."""
    observer = [(OBSERVER, "deploy.group.prometheus")] if config.supervisor.prometheus_port else []
    return [*observer, *processes(config)]


def die_with_parent() -> None:
    """Make this process end when its parent is killed (Linux only)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def supervisor_config(config: Config) -> str:
    """Build the text of supervisord.conf."""
    run_dir = config.run_path
    lines = [
        "[supervisord]",
        "nodaemon = true",
        "silent = true",
        f"logfile = {_escape(run_dir / 'supervisord.log')}",
        f"pidfile = {_escape(run_dir / 'supervisord.pid')}",
        f"childlogdir = {_escape(run_dir)}",
        f"directory = {_escape(ROOT)}",
    ]
    for priority, (name, module) in enumerate(programs(config), start=1):
        lines += ["", *_program(config, name, module, priority)]
    return "\n".join(lines) + "\n"


def _program(config: Config, name: str, module: str, priority: int) -> list[str]:
    command = f"{_escape(sys.executable)} -m {module} --name {name} --run-dir {_escape(config.run_path)}"
    return [
        f"[program:{name}]",
        f"command = {command}",
        f"priority = {priority}",
        "startsecs = 2",
        f"startretries = {WITHOUT_LIMIT}",
        "autorestart = true",
        f"stopwaitsecs = {math.ceil(_drain_seconds(config, name) + config.supervisor.stop_timeout)}",
        f"stderr_logfile = {_escape(config.run_path / f'{name}.log')}",
        f"stderr_logfile_maxbytes = {LOG_BYTES}",
        "stderr_logfile_backups = 1",
        "redirect_stderr = false",
        "stdout_logfile = NONE",
    ]


def _drain_seconds(config: Config, name: str) -> float:
    """Return the longest time that a process takes to stop by itself."""
    if name == "gateway":
        return config.gateway.drain_grace + config.gateway.drain_timeout
    return config.scheduler.drain_timeout


def _escape(path: Path | str) -> str:
    """Quote a path for supervisord, where a percent sign begins an expansion and blanks separate words."""
    text = str(path).replace("%", "%%")
    return f'"{text}"' if " " in text else text
