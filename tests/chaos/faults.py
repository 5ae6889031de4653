"""Faults that are injected into a running process group from outside."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import resource
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.integration.group import Group, eventually

POISON_SEED = 66_666
SYS_PIDFD_GETFD = 438  # on every architecture of Linux
BACK_SECONDS = 60.0
NOTICED_SECONDS = 2.0  # for /readyz to say that a process is gone
WORKERS = ("ar_worker", "vocoder_worker")
_libc = ctypes.CDLL(None, use_errno=True)


class Fault(NamedTuple):
    """A fault. ``breaks``: whether it may break off the connections of clients, as the death of the gateway does."""

    kind: str
    inject: Callable[[], object]
    detail: str = ""
    breaks: bool = False


class Injector:
    """Draws faults for a group of cost-model executors. ``signs``: directory of the files at which they hang."""

    def __init__(self, group: Group, signs: Path, chance: random.Random, longest_stop: float = 7.0) -> None:
        self._group, self._signs, self._chance, self._longest_stop = group, signs, chance, longest_stop

    def draw(self) -> Fault:
        """Any fault; kills and stops of workers and scheduler are the most frequent."""
        chance = self._chance
        kind = chance.choices(["kill", "stop", "cut", "hang", "gateway", "poison", "disk"], [8, 6, 4, 2, 1, 1, 1])[0]
        if kind == "kill":
            names = chance.choice(
                [["scheduler"], ["ar_worker"], ["vocoder_worker"], [*WORKERS], ["scheduler", *WORKERS]]
            )
            return Fault(f"kill {' '.join(names)}", lambda: self.kill(*names))
        if kind == "stop":
            name = chance.choice(["scheduler", "gateway", *WORKERS])
            seconds = round(chance.uniform(0.2, self._longest_stop), 1)
            return Fault(f"stop {name}", lambda: self.stop(name, seconds), f"for {seconds} s")
        if kind == "cut":
            program, path = chance.choice(
                [("vocoder_worker", "vocoder_worker.audio.sock"), ("scheduler", "scheduler.sock")]
            )
            return Fault(f"cut {path}", lambda: self.cut(program, path))
        if kind == "hang":
            name = chance.choice(WORKERS)
            return Fault(f"hang {name}", lambda: self.hang(name))
        if kind == "poison":
            return Fault("poison", self.poison)
        if kind == "disk":
            return Fault("full disk", self.fill_disk)
        return Fault("kill gateway", lambda: self.kill("gateway"), breaks=True)

    def kill(self, *names: str) -> None:
        """Kill processes; /readyz must say so, unless the next ones are there already."""
        before = {name: self._starts(name) for name in names}
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                self._group.kill(name)
        restarted = lambda: all(self._starts(name) > starts for name, starts in before.items())  # noqa: E731
        eventually(lambda: not self._group.ready() or restarted(), NOTICED_SECONDS)

    def _starts(self, name: str) -> int:
        return int((self._group.run_dir / f"{name}.starts").read_text())

    def stop(self, name: str, seconds: float) -> None:
        pid = self._group.pid(name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)

    def cut(self, program: str, path: str) -> int:
        """Cut all connections that a process has accepted at a socket of the run directory; how many there were."""
        found = psutil.Process(self._group.pid(program)).net_connections("unix")
        here = [one.fd for one in found if str(one.laddr).endswith(path)]
        return sum(shut_down(self._group.pid(program), fd) for fd in here)

    def hang(self, name: str) -> None:
        """Have the compute thread of a worker hang, until it has ended itself."""
        before = self._group.pid(name)
        file = self._signs / f"hang-{name}"
        file.touch()
        try:
            eventually(lambda: self._group.pid(name) != before or not psutil.pid_exists(before), BACK_SECONDS)
        finally:
            file.unlink()

    def poison(self) -> None:
        """A request that kills its AR worker; it must end with an error of its own."""
        fields = {"text": "Poison.", "seed": POISON_SEED, "format": "pcm"}
        body, headers = json.dumps(fields).encode(), {"Content-Type": "application/json"}
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(
                urllib.request.Request(f"{self._group.base}/v1/tts", body, headers), None, BACK_SECONDS
            )
        assert json.load(caught.value)["error"]["code"] == "worker_lost"

    def fill_disk(self) -> None:
        """For a moment the gateway can't write files, as far as it can tell because there is no room."""
        gateway = psutil.Process(self._group.pid("gateway"))
        before = gateway.rlimit(resource.RLIMIT_FSIZE)
        gateway.rlimit(resource.RLIMIT_FSIZE, (16, before[1]))
        time.sleep(1.0)
        gateway.rlimit(resource.RLIMIT_FSIZE, before)


def shut_down(pid: int, fd: int) -> bool:
    """Shut down a connection of another process, a descendant of this one; False: it is a listening socket."""
    process = os.pidfd_open(pid)
    try:
        copy = _libc.syscall(SYS_PIDFD_GETFD, process, fd, 0)
    finally:
        os.close(process)
    if copy < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with socket.socket(fileno=copy) as connection:
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
    return True
