"""``deploy/run_all.sh``: resolves the configuration, starts the process group, reports readiness, stops it in order."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import click

from common import command_line
from common import config as configuration
from common.addresses import is_loopback
from common.checkpoint import CheckpointError, load_codec_config, load_generation_config, load_model_config
from common.config import Config, ConfigError, worker_names
from common.files import make_private, make_writable, write_atomically
from common.transport import audio_endpoint, load_curve_keys
from common.weight_files import check_weight_files
from deploy.group import mps, ports, prometheus
from deploy.group.mps import MpsError
from deploy.group.supervision import CONFIG_FILE, die_with_parent, processes, programs, supervisor_config

POLL_SECONDS = 0.2
KILL_SECONDS = 5.0
LOG_TAIL_LINES = 5
PROMETHEUS_PORT = 9090


DIRECTORY = click.Path(path_type=Path, resolve_path=True)
COMMAND = click.Command(
    None,
    help="Start a Shoal process group.",
    params=[
        click.Option(["--host"], help="address to listen on (default 127.0.0.1)"),
        click.Option(["--port"], type=int, help="port to listen on, 0 for any free one (default 8080)"),
        click.Option(
            ["--model"], type=DIRECTORY, metavar="DIR", help="checkpoint directory (default: the bundled models/mini)"
        ),
        click.Option(["--config"], type=click.Path(path_type=Path), metavar="FILE", help="configuration file (TOML)"),
        click.Option(["--set"], multiple=True, metavar="SECTION.KEY=VALUE", help="override one setting; repeatable"),
        click.Option(
            ["--data-dir"], type=DIRECTORY, metavar="DIR", help="voices and other durable data (default: data)"
        ),
        click.Option(
            ["--run-dir"],
            type=DIRECTORY,
            metavar="DIR",
            help="sockets, logs, pids, ports (default: a temporary one)",
        ),
        click.Option(
            ["--observe"],
            type=int,
            is_flag=False,
            flag_value=PROMETHEUS_PORT,
            metavar="[PORT]",
            help=f"start a Prometheus as well, on a loopback port (default {PROMETHEUS_PORT})",
        ),
    ],
)
SETTINGS = {  # of the options that stand for one
    "host": "gateway.host",
    "port": "gateway.port",
    "model": "model.dir",
    "data_dir": "data_dir",
    "run_dir": "run_dir",
    "observe": "supervisor.prometheus_port",
}


def parse(arguments: Sequence[str] | None = None, program: str = "deploy/run_all.sh") -> Config:
    """Parse a command line to a configuration with absolute directories.

    Raises:
        ConfigError: an option, the file or an override can't be used.
    """
    options = command_line.parse(COMMAND, program, arguments)
    named = {SETTINGS[name]: value for name, value in options.items() if name in SETTINGS}
    overrides = [f"{key}={json.dumps(value, default=str)}" for key, value in named.items() if value is not None]
    overrides = [*options["set"], *overrides]
    config = configuration.resolve(options["config"], overrides)
    if config.run_dir:
        return config
    return configuration.resolve(options["config"], [*overrides, f"run_dir={tempfile.mkdtemp(prefix='shoal-')}"])


def check(config: Config) -> None:
    """Check for what would fail later, before anything is started.

    Raises:
        CheckpointError: the checkpoint's metadata can't be used, or a weight file is not whole.
        ConfigError, ValueError, OSError: directories or ports can't be used.
    """
    load_model_config(config.model_dir)
    load_codec_config(config.model_dir)
    load_generation_config(config.model_dir)
    if "torch" in (config.ar_worker.executor, config.vocoder_worker.executor):
        check_weight_files(config.model_dir)
    make_private(config.run_path)
    for directory in (config.data_path, config.voices_path):
        make_writable(directory)
    for name, _ in worker_names(config):
        audio_endpoint(config, name)
    for name, _ in processes(config):
        load_curve_keys(config, name)
    if _alive(config.run_path / "supervisord.pid"):
        raise ConfigError(f"run directory: {config.run_path} is in use by another group")
    for setting, host, port in _listening(config):
        if reason := ports.objection(host, port):
            raise ConfigError(f"{setting}: nobody can listen at {host}:{port} ({reason})")
    prometheus.check(config)


def _listening(config: Config) -> list[tuple[str, str, int]]:
    """Yield setting, host and port of each address that the group listens at; port 0: any free one."""
    transport = config.transport
    addresses = [
        ("gateway.host, gateway.port", config.gateway.host, config.gateway.port),
        ("gateway.admin_host, gateway.admin_port", config.gateway.admin_host, config.gateway.admin_port),
    ]
    if transport.scheduler:
        host, _, port = transport.scheduler.removeprefix("tcp://").rpartition(":")
        addresses.append(("transport.scheduler", host, int(port)))
    if transport.audio_host:
        addresses.append(("transport.audio_host", transport.audio_host, 0))
    return addresses


def exposures(config: Config) -> list[str]:
    """Return warnings about addresses that others can reach without an API key."""
    settings, warnings = config.gateway, []
    if not is_loopback(settings.host) and not settings.api_keys_file and not os.environ.get("SHOAL_API_KEYS"):
        warnings.append(
            f"everyone who reaches {settings.host} may use this server, and add and delete voices: there are no API "
            "keys (gateway.api_keys_file)"
        )
    if not is_loopback(settings.admin_host):
        warnings.append(f"everyone who reaches gateway.admin_host {settings.admin_host} sees metrics and requests")
    return warnings


ADDRESS_FILES = ("gateway.address", "gateway.admin_address", "targets.json")


def prepare(config: Config) -> None:
    """Write the configuration to the run directory and remove the files of an earlier group."""
    for pattern in ("*.pid", "*.metrics", "*.starts", "*.no-graphs", "*.sock", *ADDRESS_FILES):
        for path in config.run_path.glob(pattern):
            path.unlink()
    configuration.save(config)


class Group:
    """A running process group."""

    def __init__(self, config: Config) -> None:
        self.config = config
        prepare(config)
        path = config.run_path / CONFIG_FILE
        write_atomically(path, supervisor_config(config).encode())
        self._stopping = False
        command = [sys.executable, "-m", "deploy.group.supervisord", "-n", "-c", str(path)]
        # A session of its own: Ctrl-C reaches this process alone, which passes it on.
        self._supervisor = subprocess.Popen(command, start_new_session=True, preexec_fn=die_with_parent)

    def stop(self, *_: object) -> None:
        """Stop the group in order; at once the second time."""
        if not self._stopping:
            self._stopping = True
            _say_safely("stopping: running requests are finished first; once more to stop at once")
            self._supervisor.terminate()
        else:
            self._kill()

    def wait_ready(self) -> str | None:
        """Wait for readiness and return the address; None if the group ends or isn't ready in time."""
        deadline = time.monotonic() + self.config.supervisor.start_timeout
        while self._supervisor.poll() is None and not self._stopping and time.monotonic() < deadline:
            address = self._address()
            if address is not None and _is_ready(address):
                return address
            time.sleep(POLL_SECONDS)
        return None

    def wait(self) -> int:
        """Wait for the end; returns the exit status: 0 for an orderly stop on request."""
        return 0 if self._supervisor.wait() == 0 and self._stopping else 1

    @property
    def stopping(self) -> bool:
        return self._stopping

    def explain(self) -> str:
        """Return the last lines of each process's log."""
        parts = []
        for name, _ in programs(self.config):
            log = self.config.run_path / f"{name}.log"
            lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:] if log.exists() else []
            parts.append("\n".join([f"--- {log}", *lines]))
        return "\n".join(parts)

    def _address(self) -> str | None:
        try:
            return (self.config.run_path / "gateway.address").read_text().strip()
        except FileNotFoundError:
            return None

    def _kill(self) -> None:
        """Kill the group, the supervisor first, so that it restarts nothing."""
        children = _children(self._supervisor.pid) or self._written_pids()
        self._supervisor.kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _written_pids(self) -> list[int]:
        """Return the pids of the processes that have written theirs."""
        files = (self.config.run_path / f"{name}.pid" for name, _ in programs(self.config))
        return [int(file.read_text()) for file in files if file.exists()]


def _alive(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def _say_safely(text: str) -> None:
    """Print from a signal handler, where a buffered stream may be in the middle of a write."""
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"shoal: {text}\n".encode())


def _children(pid: int) -> list[int]:
    """Return the children of a process, where the system tells them (Linux)."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main(arguments: Sequence[str] | None = None, program: str = "deploy/run_all.sh") -> int:
    """Run the group of a command line until asked to stop; returns the exit status."""
    try:
        config = parse(arguments, program)
        check(config)
        with mps.shared(config):
            return run(config)
    except (ConfigError, CheckpointError, MpsError, ValueError, OSError) as error:
        print(f"shoal: {error}", file=sys.stderr)
        return 2


def run(config: Config) -> int:
    """Run a group until asked to stop; returns the exit status."""
    print(f"shoal: starting; logs are in {config.run_path}", file=sys.stderr, flush=True)
    for warning in exposures(config):
        print(f"shoal: warning: {warning}", file=sys.stderr, flush=True)
    group = Group(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, group.stop)
    address = group.wait_ready()
    if address is not None:
        print(f"Shoal is ready at http://{address} (run directory {config.run_path})", flush=True)
        if config.gateway.host in ("0.0.0.0", "::") and (lan := ports.lan_address()):
            print(
                f"shoal: others on this network reach it at http://{lan}:{address.rpartition(':')[2]}",
                file=sys.stderr,
                flush=True,
            )
        if greeting := prometheus.greeting(config):
            print(greeting, flush=True)
    elif not group.stopping:
        print(f"shoal: the group did not become ready\n{group.explain()}", file=sys.stderr)
        group.stop()
        group.wait()
        return 1
    status = group.wait()
    print("shoal: stopped" if status == 0 else "shoal: the group has ended by itself", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
