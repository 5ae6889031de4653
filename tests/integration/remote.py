"""Workers of a group that run somewhere else, as an operator starts them: ``shoal worker``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.integration.group import ROOT, STOP_SECONDS


class Remote(NamedTuple):
    process: subprocess.Popen[bytes]
    run_dir: Path

    def log(self) -> str:
        return (self.run_dir / "log").read_text()


@contextmanager
def worker(name: str, run_dir: Path, options: Sequence[str], prefix: Sequence[str] = ()) -> Iterator[Remote]:
    """A worker of this name, whose role begins it. ``prefix``: a command that runs another one elsewhere."""
    role = name.split("-")[0]
    command = [*prefix, sys.executable, "-m", "deploy.cli", "worker", role, name, "--run-dir", str(run_dir), *options]
    run_dir.mkdir()
    with (run_dir / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stderr=log)
    try:
        yield Remote(process, run_dir)
    finally:
        process.kill()
        process.wait(STOP_SECONDS)
