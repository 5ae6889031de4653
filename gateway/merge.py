"""One exposition of all processes' metrics, each fetched from its own port, with its name as a label.

Text in, text out (the Prometheus text format, version 0.0.4): families of the same name become one, in which every
sample carries the label ``process``; a sample that names a process itself keeps that name.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TIMEOUT = 1.0  # seconds per process

_OWN_PROCESS = re.compile(r'[{,]process="')


def scrape(run_dir: Path) -> str:
    """The metrics of all processes that wrote a port to the run directory, and which of them answered.

    Waits for sockets: call it from a thread.
    """
    ports = {path.stem: path for path in sorted(run_dir.glob("*.metrics"))}
    with ThreadPoolExecutor(max(1, len(ports))) as threads:
        texts = dict(zip(ports, threads.map(_fetch, ports.values()), strict=True))
    up = "".join(f'shoal_up{{process="{name}"}} {int(text is not None)}\n' for name, text in texts.items())
    head = "# HELP shoal_up Whether a process answered when its metrics were fetched.\n# TYPE shoal_up gauge\n"
    return head + up + merge({name: text for name, text in texts.items() if text is not None})


def merge(texts: dict[str, str]) -> str:
    """One exposition of several, process name to text."""
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
    """Lines with the family each belongs to: that of the HELP or TYPE line before it."""
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
    """None for a process that does not answer."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", int(port_file.read_text()), timeout=TIMEOUT)
        try:
            connection.request("GET", "/metrics")
            reply = connection.getresponse()
            return reply.read().decode() if reply.status == 200 else None
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException):
        return None
