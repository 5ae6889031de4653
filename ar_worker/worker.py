"""The AR worker's compute loop: one step plan after another."""

from __future__ import annotations

import logging

from ar_worker.answers import Answers
from ar_worker.executor import Executor, StepOutput
from ar_worker.metrics import ArMetrics
from common import device_faults
from common.checkpoint import ModelConfig
from common.messages import ArWorkerHello, Message, StepDone, StepPlan
from common.process import Process
from common.transport import Context
from common.worker import Stop, WorkerLink

log = logging.getLogger(__name__)


class ArWorker:
    """Runs an executor of a model under a scheduler."""

    def __init__(self, process: Process, context: Context, executor: Executor, model: ModelConfig) -> None:
        self._metrics = ArMetrics(process.registry, executor)
        settings = process.config.ar_worker
        hello = ArWorkerHello(
            process.name,
            settings.slots,
            executor.pages,
            settings.page_size,
            context=model.max_seq_len,
            semantic_begin=model.semantic_begin_id,
            max_prefill_tokens=process.config.scheduler.prefill_budget,
        )
        self._link = WorkerLink(process, context, hello)
        self._metrics.queues.values = self._link.queues
        self._answers = Answers(executor, self._answer, lambda error: device_faults.leave(process, error))
        self._link.also_busy = self._answers.busy_seconds

    def run(self) -> None:
        """Serve until told to stop. A reset needs nothing: an assignment starts its slot anew."""
        with self._link, self._answers:
            while not isinstance(work := self._link.inbox.get(), Stop):
                if isinstance(work, Message):
                    self._handle(work)

    def _handle(self, message: Message) -> None:
        if not isinstance(message.body, StepPlan):
            log.warning("unexpected message", extra={"body": type(message.body).__name__})
            return
        self._answers.launch(message, message.body, self._link.inbox.arrived)

    def _answer(self, message: Message, output: StepOutput) -> None:
        assert isinstance(message.body, StepPlan)
        done = StepDone(message.body.step, output.duration, message.body.registration)
        self._link.answer(message, done, [output.codes, output.ended])
