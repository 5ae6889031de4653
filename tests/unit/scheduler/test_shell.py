"""The scheduler process between a gateway and a worker that the test plays: faulty and late messages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from common import config as configuration
from common import transport
from common.config import ROOT, resolve
from common.messages import (
    Array,
    ArWorkerHello,
    Body,
    Cancel,
    Disowned,
    Ended,
    GatewayHello,
    GroupState,
    Ping,
    Sampling,
    StepDone,
    StepPlan,
    Submit,
    Welcome,
    pack,
    unpack,
)
from common.transport import CONNECTED, Context
from tests.unit.common.test_transport import eventually

SAMPLING = Sampling(0.8, 0.8, 0.8, 30, seed=1)
PROMPT = np.zeros((11, 8), np.int32)


class Peer:
    """A process that registers with the scheduler."""

    def __init__(self, context: Context, endpoint: str, name: str) -> None:
        self.name, self.scheduler = name, ""
        self._socket, monitor = context.dealer(endpoint, name, transport.SCHEDULER)
        eventually(lambda: CONNECTED in monitor.events(), 30)

    def register(self, hello: Body) -> None:
        self.send(hello)
        frames = eventually(lambda: transport.receive(self._socket))
        while not isinstance((message := unpack(frames)).body, Welcome):
            frames = eventually(lambda: transport.receive(self._socket))
        self.scheduler = message.source

    def send(self, body: Body, *arrays: Array) -> None:
        frames = pack(body, arrays, source=self.name, target=self.scheduler)  # type: ignore[arg-type]
        transport.send(self._socket, frames)

    def next(self) -> Body:
        """The next message that is not about liveness or the state of the group."""
        while True:
            body = unpack(eventually(lambda: transport.receive(self._socket), 10)).body
            if not isinstance(body, Ping | GroupState):
                return body


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Callable[[str], Peer]]:
    """Starts the scheduler; makes its peers."""
    config = resolve(None, [f"run_dir={tmp_path}", "scheduler.worker_timeout=60.0"])
    configuration.save(config)
    command = [sys.executable, "-m", "scheduler", "--run-dir", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    context, endpoint = Context(), transport.scheduler_endpoint(config)
    yield lambda name: Peer(context, endpoint, name)
    assert process.poll() is None, "the scheduler lives on"
    process.kill()
    process.wait()
    context.close()


def submit(request: str) -> Submit:
    return Submit(request, "codes", True, SAMPLING, 20, [8], None)


def hello() -> ArWorkerHello:
    return ArWorkerHello("ar_worker", slots=4, pages=64, page_size=4, context=128, semantic_begin=0)


def test_a_message_that_cannot_be_handled_ends_its_request_and_not_the_others(peer: Callable[[str], Peer]) -> None:
    gateway, worker = peer("gateway-1"), peer("worker-1")
    gateway.register(GatewayHello("gateway"))
    worker.register(hello())
    gateway.send(submit("good"), PROMPT)
    assert isinstance(worker.next(), StepPlan)
    gateway.send(submit("bad"))  # no prompt
    ended = gateway.next()
    assert isinstance(ended, Ended)
    assert (ended.request, ended.failure and ended.failure.code) == ("bad", "internal_error")
    gateway.send(submit("good"), PROMPT)
    ended = gateway.next()
    assert isinstance(ended, Ended)
    assert (ended.request, ended.failure and ended.failure.code) == ("good", "duplicate_request"), "it is under way"


def test_a_worker_that_registers_again_may_answer_late_and_one_that_answers_nonsense_is_told(
    peer: Callable[[str], Peer],
) -> None:
    gateway, worker = peer("gateway-1"), peer("worker-1")
    gateway.register(GatewayHello("gateway"))
    worker.register(hello())
    gateway.send(submit("first"), PROMPT)
    first = worker.next()
    assert isinstance(first, StepPlan)
    gateway.send(Cancel("first", "cancelled"))
    worker.register(hello())
    late = np.full((1, 10), 7, np.int16), np.zeros(1, np.uint8)
    worker.send(StepDone(first.step, 0.01, first.registration), *late)
    gateway.send(submit("second"), PROMPT)
    second = worker.next()
    assert isinstance(second, StepPlan), "and not Disowned"
    assert second.registration > first.registration
    worker.send(StepDone(99, 0.01, second.registration), *late)
    while not isinstance(body := worker.next(), Disowned):
        assert isinstance(body, StepPlan)  # sent ahead
