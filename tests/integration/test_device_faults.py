"""Real processes whose imagined devices break as a GPU does: what shares one starts anew, and the group goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from common.device_faults import EXIT_CODE
from tests.integration.client import gather, speak
from tests.integration.group import PROGRAMS, Group, costs, eventually, running

STICKY = "CUDA error: an illegal memory access was encountered"
COMMAND = [sys.executable, "-m", "tests.integration.faulty"]


@contextmanager
def breakable() -> Iterator[Group]:
    with running(*costs(step_ms=20.0), command=COMMAND) as group:
        yield group


def break_down(group: Group, program: str, error: str) -> None:
    """Have the worker meet the error in the middle of a stream."""

    async def midway() -> None:
        await asyncio.sleep(1.0)
        (group.run_dir / f"{program}.fault").write_text(error)

    speech = speak(group.base, "A stream in flight.", max_new_tokens=200)
    gather(speech, midway())


def pids(group: Group) -> dict[str, int]:
    return {program: group.pid(program) for program in PROGRAMS}


def serves(group: Group) -> bool:
    (reply,) = gather(speak(group.base, "New.", max_new_tokens=10, streaming=False))
    return bool(reply.status == 200)


@pytest.mark.parametrize(
    ("broken", "other"),
    [("ar_worker", "vocoder_worker"), pytest.param("vocoder_worker", "ar_worker", marks=pytest.mark.slow)],
)
def test_a_sticky_error_of_one_worker_restarts_both_and_nothing_else(broken: str, other: str) -> None:
    with breakable() as group:
        before = pids(group)
        break_down(group, broken, STICKY)
        eventually(lambda: all(pids(group)[worker] != before[worker] for worker in (broken, other)), 30)
        eventually(group.ready, 60)
        after = pids(group)
        assert {program for program in PROGRAMS if after[program] != before[program]} == {"ar_worker", "vocoder_worker"}
        supervisor = (group.run_dir / "supervisord.log").read_text()
        assert f"exited: {broken} (exit status {EXIT_CODE}" in supervisor
        assert f"exited: {other} (terminated by SIGKILL" in supervisor
        assert STICKY in (group.run_dir / f"{broken}.log").read_text(), "the log says what happened"
        assert serves(group)
        eventually(group.idle)


@pytest.mark.slow
def test_an_error_that_leaves_the_device_alone_restarts_its_worker_alone() -> None:
    with breakable() as group:
        before = pids(group)
        break_down(group, "ar_worker", "CUDA error: invalid argument")
        eventually(lambda: pids(group)["ar_worker"] != before["ar_worker"], 30)
        eventually(group.ready, 60)
        assert pids(group)["vocoder_worker"] == before["vocoder_worker"]
        assert serves(group)
