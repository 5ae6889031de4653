"""Device faults: CUDA errors after which a process can't use its GPU any more, and a worker's reaction to them.

After a sticky CUDA error every further call fails until the process ends. Under MPS the fault of one client is reported
to all clients of that GPU, and the server takes no new client before all of them have ended. So a worker that meets one
ends the workers that share its device, then itself with :data:`EXIT_CODE`; the supervisor starts them all anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NoReturn

from common.config import Config, worker_names
from common.process import Process

EXIT_CODE = 90
NOT_READY_PAUSE = 5.0  # seconds before the next attempt, while MPS accepts no clients

log = logging.getLogger(__name__)


class Fault(Enum):
    """``STICKY``: the device is lost for every process that shares it. ``NOT_READY``: MPS refused this process."""

    STICKY = "sticky"
    NOT_READY = "not ready"


_FAULTS = {
    214: (Fault.STICKY, "uncorrectable ECC error"),
    220: (Fault.STICKY, "uncorrectable NVLink error"),
    700: (Fault.STICKY, "illegal memory access"),
    702: (Fault.STICKY, "the launch timed out"),
    710: (Fault.STICKY, "device-side assert"),
    714: (Fault.STICKY, "hardware stack error"),
    715: (Fault.STICKY, "an illegal instruction was encountered"),
    716: (Fault.STICKY, "misaligned address"),
    717: (Fault.STICKY, "operation not supported on global/shared address space"),
    718: (Fault.STICKY, "invalid program counter"),
    719: (Fault.STICKY, "unspecified launch failure"),
    805: (Fault.STICKY, "MPS client failed to connect"),
    806: (Fault.STICKY, "call between the MPS server and the MPS client failed"),
    807: (Fault.NOT_READY, "MPS server is not ready to accept"),
    808: (Fault.NOT_READY, "resources required to create MPS client have been exhausted"),
    809: (Fault.NOT_READY, "resources required to support device connections have been exhausted"),
    810: (Fault.STICKY, "MPS client has been terminated"),
}
"""Fault and a part of CUDA's description, by the CUDA runtime's error number."""


def classify(error: BaseException) -> Fault | None:
    """Classify an error, or one that caused it, as a device fault; None: it is none.

    Torch raises them as a RuntimeError with CUDA's description, later versions with an ``error_code`` too.
    """
    link: BaseException | None = error
    while link is not None:
        fault = _fault_of(link)
        if fault is not None:
            return fault
        link = link.__cause__ or link.__context__
    return None


def _fault_of(error: BaseException) -> Fault | None:
    if not isinstance(error, RuntimeError):
        return None
    by_code = _FAULTS.get(getattr(error, "error_code", 0))
    if by_code is not None:
        return by_code[0]
    text = str(error)
    return next((fault for fault, words in _FAULTS.values() if "CUDA" in text and words in text), None)


def sharing(config: Config, name: str) -> list[str]:
    """Names of the group's other workers that compute on the device of the worker ``name``.

    None of a worker that serves a scheduler elsewhere: its name is not one of this run directory's group.
    """
    devices = {"ar_worker": _device(config.ar_worker.device), "vocoder_worker": _device(config.vocoder_worker.device)}
    roles = dict(worker_names(config))
    if name not in roles:
        return []
    return [other for other, role in roles.items() if other != name and devices[role] == devices[roles[name]]]


def _device(name: str) -> str:
    return "cuda:0" if name in ("auto", "cuda") else name


@contextlib.contextmanager
def watched(process: Process) -> Iterator[None]:
    """Guard the start of a worker: a device fault ends the process (:func:`leave`), other errors are raised."""
    try:
        yield
    except Exception as error:
        if classify(error) is None:
            raise
        leave(process, error)


def leave(process: Process, error: BaseException | None) -> NoReturn:
    """End this process at once because of an error. A sticky fault also ends the workers that share its device."""
    fault = None if error is None else classify(error)
    log.critical("the worker failed", exc_info=error, extra={"device_fault": fault.value if fault else "none"})
    try:
        if fault is Fault.STICKY:
            for name in sharing(process.config, process.name):
                kill_worker(process.run_dir, name)
        elif fault is Fault.NOT_READY:
            time.sleep(NOT_READY_PAUSE)
    finally:  # in any case: with its I/O thread alone, the process would seem to be alive
        os._exit(EXIT_CODE if fault else 1)


def kill_worker(run_dir: Path, name: str) -> bool:
    """Kill the group's worker of that name, if it runs. Its pid file may be stale, so the pid must belong to a process
    that was started for this run directory."""
    try:
        pid = int((run_dir / f"{name}.pid").read_text())
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if os.fsencode(run_dir) not in arguments:
            return False
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    log.critical("killed a worker that shares the device", extra={"worker": name})
    return True
