"""The systemd units of this checkout, installed below a directory, and their processes run as systemd would do it."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from configparser import ConfigParser
from pathlib import Path

from tests.integration.group import ROOT

STOP_SECONDS = 30.0


def install(destination: Path) -> dict[str, ConfigParser]:
    """Install the units; each by its name without ``shoal-`` and suffix."""
    script = [str(ROOT / "deploy" / "targets" / "systemd" / "install.sh")]
    subprocess.run(script, check=True, env=os.environ | {"DESTDIR": str(destination)}, timeout=120)
    units = {}
    for path in sorted((destination / "etc" / "systemd" / "system").iterdir()):
        unit = ConfigParser(interpolation=None, strict=True)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(path)
        units[path.stem.removeprefix("shoal-")] = unit
    return units


def command(unit: ConfigParser, paths: dict[str, Path]) -> list[str]:
    """What the unit starts, with other places for the paths that exist on an installed machine only."""
    line = unit["Service"]["ExecStart"]
    for path, place in paths.items():
        line = line.replace(path, str(place))
    return shlex.split(line)


class Service:
    """A process of type "notify"."""

    def __init__(self, unit: ConfigParser, paths: dict[str, Path], notify: Path, watchdog: float) -> None:
        self.heard: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(notify))
        environment = {
            "PATH": os.environ["PATH"],
            "NOTIFY_SOCKET": str(notify),
            "WATCHDOG_USEC": str(int(watchdog * 1e6)),
            **dict(pair.split("=", 1) for pair in shlex.split(unit["Service"]["Environment"])),
        }
        self.process = subprocess.Popen(
            command(unit, paths), env=environment, cwd=unit["Service"]["WorkingDirectory"], stderr=subprocess.DEVNULL
        )

    def wait_for(self, message: str, seconds: float = 60.0) -> None:
        """Wait until the process has said so."""
        self._socket.settimeout(0.2)
        deadline = time.monotonic() + seconds
        while message not in self.heard:
            assert time.monotonic() < deadline, f"no {message} within {seconds} s, only {self.heard}"
            try:
                self.heard.append(self._socket.recv(100).decode())
            except TimeoutError:
                assert self.process.poll() is None, f"ended with {self.process.returncode}, said {self.heard}"

    def pings(self, seconds: float) -> int:
        """How often it says within a while that it is alive."""
        deadline, count = time.monotonic() + seconds, 0
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                count += self._socket.recv(100) == b"WATCHDOG=1"
            except TimeoutError:
                break
        return count

    def stop(self) -> int:
        """End it; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._socket.close()
