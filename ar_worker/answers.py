"""Answers to steps: resolves launched steps in order, in a thread of its own where the device runs ahead."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ar_worker.executor import Executor, StepOutput
from common.messages import Message, StepPlan


class Answers:
    """Launches steps, and answers each when it is done.

    With a depth of 1 (the synchronous twin) a step is resolved before :meth:`launch` returns. With more, a thread waits
    for the device, and as many steps as the depth allows are under way.

    Args:
        send: takes the message of a step and its output; called in the order of the steps.
        fail: takes the error of a step that can't be resolved; called in the thread.
    """

    def __init__(
        self, executor: Executor, send: Callable[[Message, StepOutput], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._executor, self._send, self._fail = executor, send, fail
        self._room = threading.BoundedSemaphore(executor.depth)
        self._tickets: queue.SimpleQueue[tuple[Message, Any] | None] = queue.SimpleQueue()
        self._since: float | None = None
        self._thread = threading.Thread(target=self._run, name="answers") if executor.depth > 1 else None

    def __enter__(self) -> Answers:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread:
            self._tickets.put(None)
            if error is None:
                self._thread.join()

    def busy_seconds(self) -> float:
        """Seconds that the thread has waited for the present step; 0 where there is none."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def launch(self, message: Message, plan: StepPlan, arrived: float) -> None:
        """Launch the step of a message; waits while as many are under way as the executor allows.

        Raises:
            ValueError: the plan is not executable.
        """
        if self._thread is None:
            self._send(message, self._executor.resolve(self._executor.launch(plan, message.arrays, arrived)))
            return
        self._room.acquire()
        self._tickets.put((message, self._executor.launch(plan, message.arrays, arrived)))

    def _run(self) -> None:
        try:
            while (item := self._tickets.get()) is not None:
                message, ticket = item
                self._since = time.monotonic()
                output = self._executor.resolve(ticket)
                self._since = None
                self._room.release()
                self._send(message, output)
        except BaseException as error:
            self._fail(error)
