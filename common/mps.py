"""NVIDIA's Multi-Process Service (MPS), through which workers share a GPU: queries of its control daemon.

A CUDA program that finds no daemon runs without it and says nothing: so each worker asks, and logs which it is. The
daemon is that of ``CUDA_MPS_PIPE_DIRECTORY``, which CUDA reads as well.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time

CONTROL = "nvidia-cuda-mps-control"
PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
LOG_DIRECTORY = "CUDA_MPS_LOG_DIRECTORY"
ACTIVE_THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

RECOVERING = ("FAULT", "INITIALIZING")  # states in which a server accepts no clients
ANSWER_SECONDS = 10.0  # for the daemon to answer
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0  # seconds between queries

log = logging.getLogger(__name__)


def ask(command: str) -> str | None:
    """Send a command to the control daemon; returns its answer, or None without an answer or without MPS."""
    try:
        reply = subprocess.run([CONTROL], input=command + "\n", capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return reply.stdout.strip() if reply.returncode == 0 else None


def servers() -> dict[int, str]:
    """Pid and state (``ACTIVE``, ``INITIALIZING``, ``FAULT``) of each server; none runs before the first client."""
    return {pid: ask(f"get_server_status {pid}") or "" for pid in _pids(ask("get_server_list"))}


def clients(server: int) -> list[int]:
    """Pids of a server's clients."""
    return _pids(ask(f"get_client_list {server}"))


def is_client(pid: int) -> bool:
    """Whether a process really uses the GPU through MPS."""
    return any(pid in clients(server) for server in servers())


def _pids(answer: str | None) -> list[int]:
    return [int(word) for word in (answer or "").split() if word.isdigit()]


def prepare(percentage: int | None, seconds: float) -> None:
    """Prepare MPS before CUDA starts in this process: set its cap (percentage of the multiprocessors; None: no cap) and
    wait, at most ``seconds``, while a server recovers from a fault and would refuse the process."""
    if percentage is not None:
        os.environ[ACTIVE_THREAD_PERCENTAGE] = str(percentage)
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while recovering := {pid: state for pid, state in servers().items() if state in RECOVERING}:
        if time.monotonic() >= deadline:
            log.warning("MPS servers still take no client", extra={"servers": recovering})
            return
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def report(device: str) -> None:
    """Log whether this process, which computes on ``device`` (torch's name), runs under MPS."""
    if not device.startswith("cuda"):
        return
    if is_client(os.getpid()):
        log.info("runs under MPS", extra={"device": device, "cap": os.environ.get(ACTIVE_THREAD_PERCENTAGE, "none")})
    else:
        log.warning("runs without MPS: takes turns with other processes on the GPU", extra={"device": device})
