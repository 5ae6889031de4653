"""A machine with an NVIDIA GPU and MPS, as far as its command-line tools tell: scripts on PATH, state in files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common import mps

SMI = """#!/bin/sh
[ "$1" = -L ] && cat {state}/gpus
"""

CONTROL = """#!/bin/sh
if [ "$1" = -d ]; then
    if [ -e {state}/broken ]; then echo "no permission" >&2; exit 1; fi
    [ -d "$CUDA_MPS_PIPE_DIRECTORY" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] && touch {state}/running
    exit
fi
[ -e {state}/running ] || {{ echo "Cannot find MPS control daemon process"; exit 1; }}
read -r command server
case $command in
    get_server_list) cat {state}/servers ;;
    get_server_status) cat {state}/status.$server ;;
    get_client_list) cat {state}/clients.$server ;;
    quit) rm {state}/running ;;
esac
"""


class Machine:
    """``state`` files: running, broken, gpus, servers, status.PID, clients.PID."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = root / "state"
        self.programs = root / "programs"
        self.state.mkdir()
        self.programs.mkdir()
        self.install("nvidia-smi", SMI)
        self.install(mps.CONTROL, CONTROL)
        self.write("gpus", "GPU 0: NVIDIA H200 (UUID: GPU-0)\n")
        self.write("servers", "")
        monkeypatch.setenv("PATH", f"{self.programs}:{os.environ['PATH']}")
        monkeypatch.setenv(mps.PIPE_DIRECTORY, str(root / "pipes" / "of-shoal"))
        monkeypatch.setenv(mps.LOG_DIRECTORY, str(root / "logs"))
        monkeypatch.setenv(mps.ACTIVE_THREAD_PERCENTAGE, "")  # so that what a test sets is taken back
        monkeypatch.delenv(mps.ACTIVE_THREAD_PERCENTAGE)

    def install(self, name: str, script: str) -> None:
        path = self.programs / name
        path.write_text(script.format(state=self.state))
        path.chmod(0o755)

    def remove(self, name: str) -> None:
        (self.programs / name).unlink()

    def write(self, name: str, text: str) -> None:
        (self.state / name).write_text(text)

    def server(self, pid: int, status: str, *clients: int) -> None:
        """A server that runs, the only one."""
        self.write("servers", f"{pid}\n")
        self.write(f"status.{pid}", f"{status}\n")
        self.write(f"clients.{pid}", "".join(f"{client}\n" for client in clients))

    @property
    def running(self) -> bool:
        return (self.state / "running").exists()
