"""Builds the native frame with the machine's C++ compiler, once per source, compiler and processor.

``python -m ar_worker.native.build`` builds it ahead, as the set-up does.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("frame.cpp")
FLAGS = ("-std=c++17", "-O3", "-pthread", "-fPIC", "-shared")
FOR_PROCESSOR = (("-march=native",), ("-mcpu=native",), ())
"""Flags for the processor at hand, tried in this order: not every compiler knows each of them."""
TIMEOUT = 60.0  # seconds

log = logging.getLogger(__name__)


class BuildError(RuntimeError):
    """The native frame can't be built here; the message says why."""


def cache_directory() -> Path:
    """Directory of built libraries: in the virtual environment, or else in the user's cache."""
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "shoal-native"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal-native"


def find_compiler() -> str:
    """The C++ compiler: ``$CXX``, or the first of c++, g++ and clang++.

    Raises:
        BuildError: there is none.
    """
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise BuildError("no C++ compiler")


def library(directory: Path | None = None) -> Path:
    """The library for this processor, built if it is not in the cache.

    Raises:
        BuildError: no compiler, a failed build, or no room for the result.
    """
    compiler = find_compiler()
    path = (directory or cache_directory()) / f"frame-{_key(compiler)}.so"
    if not path.exists():
        try:
            _build(compiler, path)
        except OSError as error:
            raise BuildError(f"{path}: {error.strerror}") from None
    return path


def _key(compiler: str) -> str:
    """A hash of everything that decides what the library contains and where it runs."""
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=TIMEOUT, check=False).stdout
    flags = " ".join([*FLAGS, *(flag for flags in FOR_PROCESSOR for flag in flags)])
    parts = [SOURCE.read_bytes(), flags.encode(), version, processor().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def processor() -> str:
    """The processor's model and abilities, as far as the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in reversed(lines)}
    names = ("model name", "flags", "Features", "CPU part")
    return " ".join([platform.machine(), *(told.get(name, "") for name in names)])


def _build(compiler: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        made = Path(directory) / path.name
        failures = [_compile(compiler, flags, made) for flags in FOR_PROCESSOR if not made.exists()]
        if not made.exists():
            raise BuildError(f"{compiler} failed: {failures[0]}")
        made.replace(path)


def _compile(compiler: str, flags: Sequence[str], made: Path) -> str:
    """Compile to ``made``; what the compiler says where it fails."""
    command = [compiler, *FLAGS, *flags, str(SOURCE), "-o", str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{compiler} took longer than {TIMEOUT:.0f} s") from None
    return done.stderr.strip()[-500:]


def main() -> int:
    """Build ahead of time. A machine without a compiler is no failure: the eager frame serves."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        log.info("native frame: %s", library())
    except BuildError as error:
        log.info("no native frame: %s", error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
