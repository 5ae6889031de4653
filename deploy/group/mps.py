"""``deploy/mps.sh start|stop|status``: manages the user's MPS control daemon, and decides when a group needs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from common import command_line, mps
from common.config import Config

DIRECTORIES = {mps.PIPE_DIRECTORY: "/tmp/nvidia-mps", mps.LOG_DIRECTORY: "/tmp/nvidia-log"}
CHANGE_SECONDS = 20.0  # for the daemon to come, or to go
POLL_SECONDS = 0.1
NOT_RUNNING = 3  # exit status of "status", as of init scripts


class MpsError(Exception):
    """MPS can't be started or stopped; the message says why."""


def gpus() -> list[str]:
    """Return the names and ids of this machine's NVIDIA GPUs; none without a driver."""
    try:
        reply = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=mps.ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = reply.stdout.splitlines() if reply.returncode == 0 else []
    return [line.strip() for line in lines if line.startswith("GPU ")]


def objection(config: Config, gpu_count: int) -> str | None:
    """Return why this configuration needs no MPS; None if it does."""
    if config.supervisor.mps == "off":
        return "supervisor.mps is off"
    if gpu_count == 0:
        return "there is no NVIDIA GPU, or no driver for it"
    for name, worker in (("ar_worker", config.ar_worker), ("vocoder_worker", config.vocoder_worker)):
        if worker.executor != "torch":
            return f"{name}.executor is {worker.executor}"
        if worker.device != "auto" and not worker.device.startswith("cuda"):
            return f"{name}.device is {worker.device}"
    return None


def start() -> bool:
    """Start the daemon; returns False if one answers already.

    Raises:
        MpsError: there is no driver, or the daemon doesn't start.
    """
    directories = use_directories()
    if answers():
        return False
    if not gpus():
        raise MpsError("no NVIDIA GPU or driver: nvidia-smi -L lists none")
    if shutil.which(mps.CONTROL) is None:
        raise MpsError(f"{mps.CONTROL} is not on PATH; it comes with NVIDIA's driver")
    for directory in directories:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile("w+") as output:  # no pipe: the daemon could keep it open
        code = subprocess.run([mps.CONTROL, "-d"], stdout=output, stderr=output, timeout=CHANGE_SECONDS).returncode
        if code != 0 or not _within(CHANGE_SECONDS, answers):
            output.seek(0)
            raise MpsError(f"the daemon did not start (its logs are in {directories[1]}): {output.read().strip()}")
    return True


def stop() -> bool:
    """Stop the daemon and its servers once their clients have ended; returns False if none answers.

    Raises:
        MpsError: it is still there after a while.
    """
    use_directories()
    if not answers():
        return False
    mps.ask("quit")
    if not _within(CHANGE_SECONDS, lambda: not answers()):
        raise MpsError(f"the daemon has not ended within {CHANGE_SECONDS:.0f} s: it waits for its clients")
    return True


def status() -> tuple[bool, list[str]]:
    """Return whether the daemon answers, and a report of its servers and clients."""
    pipe, _ = use_directories()
    if not answers():
        return False, [f"no MPS control daemon answers at {pipe}"]
    lines = [f"the MPS control daemon answers at {pipe}"]
    for server, state in mps.servers().items():
        pids = " ".join(map(str, mps.clients(server))) or "none"
        lines.append(f"server {server}: {state or 'state unknown'}, clients: {pids}")
    return True, lines if len(lines) > 1 else [*lines, "no server yet: the first client brings it"]


def answers() -> bool:
    """Return whether a control daemon answers."""
    return mps.ask("get_server_list") is not None


def use_directories() -> tuple[Path, Path]:
    """Set pipe and log directory in this process's environment, for CUDA and the daemon."""
    pipe, logs = (Path(os.environ.setdefault(variable, default)) for variable, default in DIRECTORIES.items())
    return pipe, logs


@contextlib.contextmanager
def shared(config: Config) -> Iterator[None]:
    """Context that runs MPS beside a group where :func:`objection` has none. An existing daemon stays.

    Raises:
        MpsError: supervisor.mps is "on" and it can't be had.
    """
    present = gpus()
    reason = objection(config, len(present))
    ours = False
    if reason is None:
        try:
            ours = start()
            _say("the workers share the GPU through MPS" + ("" if ours else ", which ran already"))
        except MpsError as error:
            reason = str(error)
    if reason is not None and config.supervisor.mps == "on":
        raise MpsError(f"supervisor.mps is on, but {reason}")
    if reason is not None and present:
        _say(f"the workers share the GPU without MPS: {reason}")
    try:
        yield
    finally:
        if ours and not any(mps.clients(server) for server in mps.servers()):
            with contextlib.suppress(MpsError):
                stop()


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _say(text: str) -> None:
    print(f"shoal: {text}", file=sys.stderr, flush=True)


COMMAND = click.Command(
    None,
    help="NVIDIA's MPS for the workers of a group.",
    params=[click.Argument(["action"], type=click.Choice(["start", "stop", "status"]))],
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 1 for failure, 3 for a status of "not running"."""
    action = command_line.parse(COMMAND, "deploy/mps.sh", arguments)["action"]
    try:
        if action == "status":
            running, lines = status()
            print("\n".join(lines))
            return 0 if running else NOT_RUNNING
        if action == "start":
            print("started" if start() else "runs already")
        else:
            print("stopped" if stop() else "does not run")
    except MpsError as error:
        print(f"mps: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
