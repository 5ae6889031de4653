"""Worker I/O: a worker process with a cost-model executor, under a scheduler that the test plays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from common import config as configuration
from common import transport
from common.config import ROOT, resolve
from common.messages import ArWorkerHello, Body, Disowned, Message, StepDone, StepPlan, Welcome, pack, unpack
from common.transport import Context
from common.worker import HANG_EXIT_CODE, INBOX_BOUND
from tests.unit.common.test_transport import eventually


class Bench:
    """One AR worker process, its run directory, and the scheduler's socket."""

    def __init__(self, run_dir: Path, context: Context, hang_timeout: float) -> None:
        self.hang = run_dir / "hang"
        settings = [f"run_dir={run_dir}", "ar_worker.executor=cost", f"ar_worker.cost.hang_file={self.hang}"]
        config = resolve(None, [*settings, "ar_worker.cost.base_ms=1.0", f"scheduler.hang_timeout={hang_timeout}"])
        configuration.save(config)
        self._log = run_dir / "log"
        self._router, _ = context.router(transport.scheduler_endpoint(config))
        command = [sys.executable, "-m", "ar_worker", "--run-dir", str(run_dir)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=log)
        self.worker = self.next(ArWorkerHello, 30).source

    @property
    def log(self) -> str:
        return self._log.read_text()

    def send(self, body: Body, scheduler: str, *arrays: np.ndarray) -> None:
        transport.send(self._router, pack(body, arrays, source=scheduler, target=self.worker), self.worker)  # type: ignore[arg-type]

    def plan(self, step: int, scheduler: str) -> None:
        nothing = (np.empty((11, 0), np.int32), np.empty(0, np.int32), np.empty((0, 3), np.int32))
        self.send(StepPlan(step, [], [], [], registration=3), scheduler, *nothing)

    def next(self, kind: type, seconds: float = 5.0) -> Message:
        """The next message; it must be of this kind."""
        frames = eventually(lambda: transport.receive(self._router), seconds)
        message = unpack(frames[1:])
        assert isinstance(message.body, kind), message.body
        return message

    def hold(self, step: int, scheduler: str) -> None:
        """Have the compute thread hang at a step."""
        self.hang.touch()
        self.plan(step, scheduler)
        time.sleep(0.1)  # longer than the step takes


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[float], Bench]]:
    """Starts the worker process, with a time after which it hangs."""
    context, made = Context(), []

    def start(hang_timeout: float) -> Bench:
        made.append(Bench(tmp_path, context, hang_timeout))
        return made[0]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()
    context.close()


def test_a_compute_thread_that_hangs_ends_the_process_and_its_stack_is_logged(bench: Callable[[float], Bench]) -> None:
    one = bench(0.5)
    one.send(Welcome(), "a")
    one.plan(0, "a")
    assert one.next(StepDone).body.step == 0
    one.hold(1, "a")
    assert one.process.wait(10) == HANG_EXIT_CODE
    assert "the compute thread hangs" in one.log
    assert "in spend" in one.log


def test_a_process_that_was_stopped_does_not_take_the_pause_for_a_hang(bench: Callable[[float], Bench]) -> None:
    one = bench(3.5)
    one.send(Welcome(), "a")
    one.hold(0, "a")
    one.process.send_signal(signal.SIGSTOP)
    time.sleep(4.0)
    one.process.send_signal(signal.SIGCONT)
    time.sleep(1.5)
    one.hang.unlink()
    assert one.next(StepDone).body.step == 0


@pytest.mark.parametrize("stopped", [0.8, 3.0])
def test_a_hang_after_a_pause_is_noticed_as_soon_as_any_other(bench: Callable[[float], Bench], stopped: float) -> None:
    one = bench(1.0)
    one.send(Welcome(), "a")
    one.hold(0, "a")
    one.process.send_signal(signal.SIGSTOP)
    time.sleep(stopped)
    one.process.send_signal(signal.SIGCONT)
    one.hang.unlink()
    assert one.next(StepDone).body.step == 0
    for step in range(1, 80):
        one.plan(step, "a")
        one.next(StepDone)
    one.hold(80, "a")
    assert one.process.wait(8) == HANG_EXIT_CODE


def test_a_reset_drops_the_work_that_waits_and_answers_go_to_the_scheduler_that_asked(
    bench: Callable[[float], Bench],
) -> None:
    one = bench(30.0)
    one.send(Welcome(), "a")
    one.hold(0, "a")
    for step in (1, 2, 3):
        one.plan(step, "a")
    one.send(Disowned(), "b")
    one.next(ArWorkerHello)
    one.send(Welcome(), "b")
    one.plan(0, "b")
    one.hang.unlink()
    answers = [one.next(StepDone), one.next(StepDone)]
    assert [(answer.target, answer.body.step) for answer in answers] == [("a", 0), ("b", 0)]


def test_more_work_than_the_inbox_holds_ends_the_process(bench: Callable[[float], Bench]) -> None:
    one = bench(30.0)
    one.send(Welcome(), "a")
    one.hold(0, "a")
    for step in range(1, INBOX_BOUND + 2):
        one.plan(step, "a")
    eventually(lambda: "the I/O thread failed" in one.log)
    one.hang.unlink()
    assert one.process.wait(10) == 1


def test_a_worker_that_is_disowned_twice_registers_once(bench: Callable[[float], Bench]) -> None:
    one = bench(30.0)
    one.send(Welcome(), "a")
    one.send(Disowned(), "a")
    one.send(Disowned(), "a")
    one.next(ArWorkerHello)
    one.send(Welcome(), "a")
    one.plan(7, "a")
    answer = one.next(StepDone).body
    assert isinstance(answer, StepDone)
    assert (answer.step, answer.registration) == (7, 3), "no other hello, and the plan's registration"
