"""Merges the metrics of all processes into one exposition, with the process name as a label.

Fetching waits and merging computes, so both happen in a thread, and once for all who ask at the same time.

Text in, text out (the Prometheus text format, version 0.0.4): families of the same name become one, in which every
sample carries the label ``process``; a sample that names a process itself keeps that name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from common.metrics import Families
from gateway.observe import process_ports

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OWN_PROCESS = re.compile(r'[{,]process="')


class Scrapes:
    """Scrapes the processes of a group, one scrape at a time. A hanging process costs one thread for a second."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrape")
        self._running: asyncio.Future[str] | None = None

    async def text(self) -> str:
        """Return the metrics of all processes with a port in the run directory, and which of them answered."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(self._thread, scrape, self._run_dir)
        return await asyncio.shield(self._running)  # who asked first may go without spoiling it for others

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def scrape(run_dir: Path) -> str:
    """See :meth:`Scrapes.text`. Waits for sockets: call it from a thread."""
    files = {path.stem: path for path in sorted(run_dir.glob("*.metrics"))}
    with ThreadPoolExecutor(max(1, len(files))) as threads:
        texts = dict(zip(files, threads.map(_fetch, files.values()), strict=True))
    registry = CollectorRegistry()
    up = up_family(Families(registry))
    for name, text in texts.items():
        up.labels(name).set(text is not None)
    answered = {name: text for name, text in texts.items() if text is not None}
    return generate_latest(registry).decode() + merge(answered)


def up_family(families: Families) -> Gauge:
    """Return the family that tells which processes answered."""
    return families.gauge("shoal_up", "Whether a process answered when its metrics were fetched.", "process")


def merge(texts: dict[str, str]) -> str:
    """Merge expositions, given as process name to text."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for process, text in texts.items():
        for family, line in _lines(text):
            if not line.startswith("#"):
                samples.setdefault(family, []).append(_labelled(line, process))
            elif family not in samples:
                heads.setdefault(family, []).append(line)
        for family in heads:
            samples.setdefault(family, [])
    return "".join(f"{line}\n" for family in heads for line in (*heads[family], *samples[family]))


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line with its family, the one of the HELP or TYPE line before it."""
    family = ""
    for line in text.splitlines():
        if line.startswith(("# HELP ", "# TYPE ")):
            family = line.split(" ", 3)[2]
        if line.strip() and family:
            yield family, line


def _labelled(line: str, process: str) -> str:
    if _OWN_PROCESS.search(line):
        return line
    end = line.find(" ")
    brace = line.find("{", 0, end)
    if brace < 0:
        return f'{line[:end]}{{process="{process}"}}{line[end:]}'
    return f'{line[: brace + 1]}process="{process}",{line[brace + 1 :]}'


def _fetch(port_file: Path) -> str | None:
    """Fetch the exposition of a process; None if it does not answer."""
    data = process_ports.fetch(port_file, "/metrics")
    return None if data is None else data.decode()
