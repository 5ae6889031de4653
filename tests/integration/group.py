"""A running process group, started as a user would start it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("gateway", "scheduler", "ar_worker", "vocoder_worker")
START_SECONDS = 120.0
STOP_SECONDS = 60.0
RUN_ALL = (str(ROOT / "deploy" / "run_all.sh"),)


class Group:
    """A process group under ``deploy/run_all.sh``, or another command that takes the same options."""

    def __init__(self, run_dir: Path, *options: str, command: Sequence[str] = RUN_ALL, cwd: Path = ROOT) -> None:
        self.run_dir = run_dir
        directories = ["--run-dir", str(run_dir), "--data-dir", str(run_dir / "data"), "--port", "0"]
        limit = ["--set", f"supervisor.start_timeout={START_SECONDS}"]  # then the logs are printed
        self.process = subprocess.Popen(
            [*command, *directories, *limit, *options], stdout=subprocess.PIPE, text=True, cwd=cwd
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        assert "ready at http://" in self.line, f"{self.line}\n{self.logs()}"
        self.address = self.line.split("http://")[1].split()[0]
        self.base = f"http://{self.address}"

    def pid(self, program: str) -> int:
        return int((self.run_dir / f"{program}.pid").read_text())

    def kill(self, program: str) -> None:
        os.kill(self.pid(program), signal.SIGKILL)

    def ready(self) -> bool:
        return is_ready(self.base)

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics, ``name{labels}`` to value; from the operators' listener, which wants no key."""
        operators = (self.run_dir / "gateway.admin_address").read_text()
        with urllib.request.urlopen(f"http://{operators}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name that carry these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        samples = self.metrics().items()
        return sum(
            value for key, value in samples if key.split("{")[0] == name and all(label in key for label in wanted)
        )

    def idle(self) -> bool:
        """Whether nothing is held: no running or waiting request, no active page."""
        held = (
            self.metric("shoal_num_requests_running"),
            self.metric("shoal_num_requests_waiting"),
            self.metric("shoal_kv_pages", state="active"),
        )
        return held == (0, 0, 0)

    def tree(self) -> list[psutil.Process]:
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.run_dir.glob("*.log")))

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the group and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)


@contextmanager
def running(*options: str, command: Sequence[str] = RUN_ALL, cwd: Path = ROOT) -> Iterator[Group]:
    """A group with a short run directory of its own (socket paths have a limit), ended on the way out."""
    with tempfile.TemporaryDirectory(prefix="shoal-test-") as run_dir:
        group = Group(Path(run_dir), *options, command=command, cwd=cwd)
        try:
            yield group
        finally:
            if group.process.poll() is None:
                group.stop()


def is_ready(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/readyz", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> float:
    """Wait for a condition; how long it took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - start


def costs(step_ms: float = 2.0, call_ms: float = 1.0, **settings: object) -> list[str]:
    """Options for cost-model executors of both workers, and other settings (``section__key=value``)."""
    chosen: dict[str, object] = {
        "ar_worker.executor": "cost",
        "vocoder_worker.executor": "cost",
        "ar_worker.cost.base_ms": step_ms,
        "vocoder_worker.cost.base_ms": call_ms,
    }
    chosen |= {key.replace("__", "."): value for key, value in settings.items()}
    return [option for key, value in chosen.items() for option in ("--set", f"{key}={json.dumps(value)}")]


def free_port() -> int:
    """A port that is free now, below those that the system gives to others meanwhile (from 32,768 on Linux)."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
