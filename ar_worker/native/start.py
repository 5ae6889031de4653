"""Starting the native frame: found or built, bound, compared; otherwise frames run in PyTorch, which is logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ar_worker.defaults import available_memory
from ar_worker.device_state import DeviceState
from ar_worker.model import DualAr
from ar_worker.native.binding import NativeError, NativeFrame
from ar_worker.native.build import BuildError, library
from ar_worker.native.check import Checked, differences
from ar_worker.runner import KvPool

MEMORY_SHARE = 0.5  # of the available memory, for the packed copies of the matrices

log = logging.getLogger(__name__)


def find_library(parameters: int) -> Path | None:
    """The library for a model of so many parameters; None, with a line in the log, if there can't be one."""
    available = available_memory()
    if available is not None and 4 * parameters > MEMORY_SHARE * available:
        log.info("frames run in PyTorch", extra={"cause": f"packed copies of {4 * parameters} bytes would not fit"})
        return None
    try:
        return library()
    except BuildError as error:
        log.info("frames run in PyTorch", extra={"cause": str(error)})
        return None


def start(
    path: Path,
    parts: tuple[DualAr, DeviceState, KvPool],
    threads: int,
    executor: Checked,
    use: Callable[[NativeFrame | None], None],
) -> NativeFrame | None:
    """The native frame of an executor's model, state and pool, if it computes what the eager one does.

    ``use`` makes the executor run this frame, or the eager one.
    """
    try:
        native = NativeFrame(path, *parts, threads)
    except NativeError as error:
        log.info("frames run in PyTorch", extra={"cause": str(error)})
        return None
    found = differences(executor, lambda wanted: use(native if wanted else None))
    if found:
        log.warning("the native frame is not used: it gave %s", found)
        return None
    return native
