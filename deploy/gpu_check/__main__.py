"""Runner of the check: each check in a process of its own under a limit of its own, one JSON line per result."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Check:
    """A check: its function, as module and name, and its limit in seconds; the first one also starts the device."""

    number: int
    name: str
    module: str
    function: str
    limit: float


CHECKS = (
    Check(0, "facts", "device_checks", "facts", 30),
    Check(1, "roofline", "device_checks", "roofline", 40),
    Check(2, "kernels", "device_checks", "kernels", 90),
    Check(3, "attention", "device_checks", "attention", 40),
    Check(4, "products", "device_checks", "products", 40),
    Check(5, "eager frame", "frame_checks", "eager_frame", 40),
    Check(6, "captures", "frame_checks", "captures", 70),
    Check(7, "frames", "frame_checks", "frames", 90),
    Check(8, "look-ahead", "frame_checks", "look_ahead", 40),
    Check(9, "prefills", "frame_checks", "prefills", 40),
)


def say(**fields: object) -> None:
    """One JSON line, flushed."""
    print(json.dumps(fields), flush=True)


def run_here(check: Check, tiny: bool) -> None:
    """Run a check in this process."""
    import torch

    from deploy.gpu_check.results import Context

    if not tiny and not torch.cuda.is_available():
        raise RuntimeError("no CUDA device; --tiny runs on a CPU")
    context = Context(torch.device("cpu" if tiny else "cuda"), tiny)
    function = getattr(importlib.import_module(f"deploy.gpu_check.{check.module}"), check.function)
    for result in function(context):
        say(check=check.number, name=check.name, **asdict(result), ratio=result.ratio)


def run_apart(check: Check, tiny: bool) -> bool:
    """Run a check in a process of its own; whether it ended well. Its lines are passed on as they come."""
    command = [sys.executable, "-m", "deploy.gpu_check", "--here", str(check.number), *(["--tiny"] if tiny else [])]
    started, good = time.monotonic(), True
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in _lines(process, check.limit):
                print(line, end="", flush=True)
                good = good and json.loads(line).get("verdict") != "fail"
        cause = f"exit code {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        cause = f"over its limit of {check.limit:g} s"
    seconds = round(time.monotonic() - started, 1)
    say(check=check.number, name=check.name, seconds=seconds, **({"died": cause} if cause else {}))
    return good and not cause


def _lines(process: subprocess.Popen[str], limit: float) -> Iterator[str]:
    """The process's lines; it is killed at the limit.

    Raises:
        subprocess.TimeoutExpired: it was.
    """
    from threading import Timer

    assert process.stdout is not None
    timer = Timer(limit, process.kill)
    timer.start()
    try:
        yield from process.stdout
        process.wait()
        if not timer.is_alive():
            raise subprocess.TimeoutExpired("gpu_check", limit)
    finally:
        timer.cancel()


def main() -> int:
    """See the module; 1 if a check failed, died or was left out for want of time."""
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    parser.add_argument("--only", help="numbers of checks, by commas")
    parser.add_argument(
        "--budget", type=float, default=600, help="seconds; checks whose limit does not fit are skipped"
    )
    parser.add_argument("--tiny", action="store_true", help="small shapes on a CPU: shows that the check itself works")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here is not None:
        run_here(CHECKS[arguments.here], arguments.tiny)
        return 0
    wanted = {int(number) for number in arguments.only.split(",")} if arguments.only else set(range(len(CHECKS)))
    end, good = time.monotonic() + arguments.budget, True
    for check in CHECKS:
        if check.number not in wanted:
            continue
        if time.monotonic() + check.limit > end:
            say(check=check.number, name=check.name, skipped=f"its limit of {check.limit:g} s is beyond the budget")
            good = False
            continue
        good = run_apart(check, arguments.tiny) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
