"""Log lines: one JSON object each, with the request that they belong to."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = """
import asyncio, logging, threading, warnings
from common import logs

logs.setup("tester", "info")
log = logging.getLogger("some.where")
BODY
"""


def lines(body: str) -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", SCRIPT.replace("BODY", body)], capture_output=True, text=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_line_has_what_every_line_has_and_the_extra_fields() -> None:
    (line,) = lines('log.info("two\\nlines", extra={"size": 3})')
    assert line["ts"].endswith("Z")
    del line["ts"]
    assert line == {"level": "info", "process": "tester", "logger": "some.where", "msg": "two\nlines", "size": 3}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('raise ValueError("nobody caught it")', "nobody caught it"),
        ('threading.Thread(target=lambda: 1 / 0, name="t").start()', "ZeroDivisionError"),
        ('warnings.warn("beware")', "beware"),
    ],
)
def test_what_python_itself_would_print_is_a_line_too(body: str, words: str) -> None:
    (line,) = lines(body)
    assert words in line["msg"] + line.get("exception", "")


def test_lines_of_a_request_name_it_in_its_tasks_and_threads_and_nowhere_else() -> None:
    body = """
async def serve(name):
    logs.bind(name, "trace of " + name)
    await asyncio.sleep(0.01)
    log.info(name)
    await asyncio.create_task(inner(name))
    await asyncio.to_thread(log.info, name)

async def inner(name):
    log.info(name)

async def main():
    await asyncio.gather(*(asyncio.create_task(serve(name)) for name in ("a", "b")))
    log.info("")

asyncio.run(main())
"""
    found = lines(body)
    assert len(found) == 7
    assert all(line.get("request_id", "") == line["msg"] for line in found)
    assert all(line.get("trace_id", "trace of ") == f"trace of {line['msg']}" for line in found)
