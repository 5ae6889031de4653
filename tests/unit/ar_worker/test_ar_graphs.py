"""The protocol of graphs, tickets and answers, with a fake device and fake executors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from ar_support import DATA, GREEDY, Driver, settings
from fake_device import FakeDevice
from prometheus_client import CollectorRegistry

from ar_worker import __main__ as ar_main
from ar_worker.answers import Answers
from ar_worker.executor import CAPTURE_EXIT_CODE, CaptureError, StepOutput
from ar_worker.ops import Ops
from ar_worker.step_inputs import StepInputs
from ar_worker.torch_executor import TorchExecutor
from common import device_faults, worker
from common.config import Config
from common.messages import Message, StepPlan
from common.process import Process

WAIT = 10.0  # seconds, a bound


def captured(device: FakeDevice, slots: int = 4) -> TorchExecutor:
    return TorchExecutor(DATA / "checkpoint_tiny", settings(slots=slots), device, Ops())


def test_graphs_are_captured_largest_first_then_sealed() -> None:
    device = FakeDevice()
    executor = captured(device, slots=10)
    executor.warm_up()
    assert executor._graphs is not None
    assert list(executor._graphs._replays) == [12, 8, 4]
    assert len(device.captured) == 3
    with pytest.raises(CaptureError, match="before the first step"):
        executor._graphs.capture([4])
    Driver(executor, list(range(64))).generate(np.ones((11, 20), int), GREEDY, 3)
    assert len(device.captured) == 3


def test_a_failed_capture_names_its_rows() -> None:
    with pytest.raises(CaptureError, match="the graph of 8 rows: CUDA error: operation not permitted"):
        captured(FakeDevice(capture_fails_at=1), slots=10).warm_up()


def test_every_output_of_a_ring_is_read_before_it_is_written_again() -> None:
    """With outputs copied as late as possible, each step still answers with its own codes."""
    prompt = np.ones((11, 20), int)
    late, prompt_end = captured(FakeDevice()), prompt.shape[1]
    late.warm_up()
    want, _ = Driver(TorchExecutor(DATA / "checkpoint_tiny", settings()), list(range(64))).generate(prompt, GREEDY, 12)
    driver, tickets, got = Driver(late, list(range(64))), [], []
    tickets.append(driver.launch(assign={0: GREEDY}, prefill=[(0, 0, prompt, True)]))
    for frame in range(11):
        tickets.append(driver.launch(decode={0: prompt_end + frame}))
        got.append(late.resolve(tickets.pop(0)).codes[0].tolist())
    got.append(late.resolve(tickets.pop(0)).codes[0].tolist())
    assert got == want.tolist()


def test_a_third_launch_before_the_first_is_resolved_would_overwrite_its_inputs() -> None:
    """Which the fake notices; :class:`Answers` never lets it happen."""
    executor = captured(FakeDevice())
    executor.warm_up()
    driver = Driver(executor, list(range(64)))
    driver.launch(assign={0: GREEDY}, prefill=[(0, 0, np.ones((11, 20), int), True)])
    driver.launch(decode={0: 20})
    with pytest.raises(AssertionError, match="filled again"):
        driver.launch(decode={0: 21})


def test_a_step_that_only_prefills_is_timed_to_its_end() -> None:
    device = FakeDevice()
    executor = captured(device)
    executor.warm_up()
    device.log.clear()
    out = Driver(executor, list(range(64))).step(assign={0: GREEDY}, prefill=[(0, 0, np.ones((11, 16), int), False)])
    assert (out.codes.shape, out.duration) == ((0, 10), 0.25)
    assert device.log == ["begin", "in", "out", "wait"]


def test_step_inputs_hold_any_types_and_refuse_too_much() -> None:
    host, device = torch.zeros(256, dtype=torch.uint8), torch.zeros(256, dtype=torch.uint8)
    inputs = StepInputs(host, device)
    arrays = [np.arange(3), np.array([True, False]), np.ones((2, 3), np.float32)]
    arrays += [np.zeros((0, 4), np.int64), np.arange(5, dtype=np.int32)]
    tensors = [inputs.put(array) for array in arrays]
    sent, received = inputs.used
    received.copy_(sent)
    for tensor, array in zip(tensors, arrays, strict=True):
        assert torch.equal(tensor, torch.from_numpy(array))
    with pytest.raises(ValueError, match="more than 256 bytes"):
        inputs.put(np.zeros(33))
    inputs.begin()
    assert inputs.put(np.arange(2)).data_ptr() == device.data_ptr()


class Ended(BaseException):
    """In place of the end of the process."""


def test_a_failed_capture_ends_the_worker_which_starts_again_without_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Failing:
        def warm_up(self) -> None:
            if asked[-1]:
                raise CaptureError("the graph of 8 rows: out of memory")

    def make(config: Config, graphs: bool) -> Failing:
        asked.append(graphs)
        return Failing()

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(ar_main, "make_executor", make)
    monkeypatch.setattr("os._exit", end)
    process = Process("ar_worker", Config(), tmp_path, "i", CollectorRegistry(), {}, 0)
    with pytest.raises(Ended, match=str(CAPTURE_EXIT_CODE)):
        ar_main.prepared(process)
    ar_main.prepared(process)
    assert asked == [True, False]
    assert (tmp_path / "ar_worker.no-graphs").read_text() == "the graph of 8 rows: out of memory"


def test_each_way_in_which_a_worker_ends_itself_has_an_exit_code_of_its_own() -> None:
    assert len({CAPTURE_EXIT_CODE, device_faults.EXIT_CODE, worker.HANG_EXIT_CODE}) == 3


# Answers --------------------------------------------------------------------------------------------------------------


class SlowExecutor:
    """Runs ahead by ``depth`` steps; each is done when the test says so."""

    device, frame_path = "none", "cost"

    def __init__(self, depth: int) -> None:
        self.depth, self.pages, self.memory_bytes = depth, 0, dict[str, int]()
        self.launched: list[int] = []
        self.done = threading.Semaphore(0)
        self.fails = False

    def warm_up(self) -> None:
        pass

    def launch(self, plan: StepPlan, arrays: object, arrived: float = 0.0) -> int:
        self.launched.append(plan.step)
        return plan.step

    def resolve(self, ticket: int) -> StepOutput:
        assert self.done.acquire(timeout=WAIT)
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return StepOutput(np.full((1, 10), ticket, np.int16), np.zeros(1, np.uint8), 0.0)


class Outcome:
    """Records the calls of :class:`Answers`."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.errors: list[BaseException] = []
        self.changed = threading.Condition()

    def send(self, message: Message, output: StepOutput) -> None:
        with self.changed:
            self.sent.append(int(output.codes[0, 0]))
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.errors.append(error)
            self.changed.notify_all()

    def wait_for(self, sent: int = 0, errors: int = 0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.sent) >= sent and len(self.errors) >= errors, WAIT)


@contextmanager
def answers(executor: SlowExecutor) -> Iterator[tuple[Answers, Outcome]]:
    outcome = Outcome()
    with Answers(executor, outcome.send, outcome.fail) as made:
        yield made, outcome


def launch(made: Answers, step: int) -> None:
    plan = StepPlan(step, [], [], [])
    made.launch(Message("", "", plan, []), plan, 0.0)


def test_the_next_step_is_launched_before_the_last_is_answered() -> None:
    executor = SlowExecutor(depth=2)
    with answers(executor) as (made, outcome):
        launch(made, 1)
        launch(made, 2)
        assert (executor.launched, outcome.sent) == ([1, 2], [])
        executor.done.release(2)
        outcome.wait_for(sent=2)
    assert outcome.sent == [1, 2]


def test_no_more_steps_are_under_way_than_the_depth() -> None:
    executor = SlowExecutor(depth=2)
    with answers(executor) as (made, outcome):
        launch(made, 1)
        launch(made, 2)
        third = threading.Thread(target=launch, args=(made, 3))
        third.start()
        third.join(0.05)
        assert executor.launched == [1, 2]
        executor.done.release()
        third.join(WAIT)
        assert executor.launched == [1, 2, 3]
        executor.done.release(2)
        outcome.wait_for(sent=3)


def test_the_synchronous_twin_answers_before_it_returns() -> None:
    executor = SlowExecutor(depth=1)
    with answers(executor) as (made, outcome):
        executor.done.release()
        launch(made, 1)
        assert outcome.sent == [1]
        assert made.busy_seconds() == 0


def test_an_error_of_the_device_is_told_and_a_wait_is_seen() -> None:
    executor = SlowExecutor(depth=2)
    with answers(executor) as (made, outcome):
        launch(made, 1)
        deadline = threading.Event()
        for _ in range(1000):
            if made.busy_seconds() > 0:
                break
            deadline.wait(0.01)
        assert made.busy_seconds() > 0
        executor.fails = True
        executor.done.release()
        outcome.wait_for(errors=1)
    assert "illegal memory access" in str(outcome.errors[0])
