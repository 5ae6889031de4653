"""Planning a step of an AR worker: which prompts go on, who decodes, and which pages that takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import PROMPT_ROWS, Array, Assign, Prefill, StepPlan
from scheduler.request import Request
from scheduler.workers import ArWorker, Row, Step


class PlannedStep(NamedTuple):
    plan: StepPlan
    arrays: list[Array]  # prompt int32 [11, tokens], decode slots int32 [d], page appends int32 [p, 3]


class _Builder:
    """Collects one step."""

    def __init__(self, worker: ArWorker) -> None:
        self.worker = worker
        self.assigned: list[Assign] = []
        self.prefills: list[Prefill] = []
        self.prompts: list[Array] = []
        self.decodes: list[int] = []
        self.appends: list[tuple[int, int, int]] = []
        self.rows: list[Row] = []

    def prefill(self, request: Request, tokens: int) -> None:
        """Put the next ``tokens`` positions of the request's turn into the step."""
        slot = _slot(request)
        if not request.assigned:
            self.assigned.append(Assign(slot, request.sampling))
            request.assigned = True
        turn = request.turns[request.turn]
        self.prompts.append(turn[:, request.prefilled : request.prefilled + tokens])
        start = request.position
        self._advance(request, tokens)
        request.prefilled += tokens
        sample = not request.prefilling
        self.prefills.append(Prefill(slot, start, tokens, sample, request.frames))
        if sample:
            self._expect_frame(request)

    def decode(self, request: Request) -> None:
        """Feed the request's last frame and ask for the next."""
        self._advance(request, 1)
        self.decodes.append(_slot(request))
        self._expect_frame(request)

    def finish(self) -> PlannedStep:
        worker = self.worker
        step = Step(worker.steps, self.rows, sum(prefill.tokens for prefill in self.prefills))
        worker.steps += 1
        worker.in_flight.append(step)
        plan = StepPlan(step.number, worker.released, self.assigned, self.prefills)
        worker.released = []
        prompt = np.concatenate(self.prompts, axis=1) if self.prompts else np.empty((PROMPT_ROWS, 0), np.int32)
        slots = np.array(self.decodes, np.int32)
        appends = np.array(self.appends, np.int32).reshape(-1, 3)
        return PlannedStep(plan, [prompt, slots, appends])

    def _advance(self, request: Request, positions: int) -> None:
        request.position += positions
        for index in range(len(request.pages), self.worker.pages_for(request.position)):
            page = self.worker.pages.take()
            request.reserved -= 1
            request.pages.append(page)
            self.appends.append((_slot(request), index, page))

    def _expect_frame(self, request: Request) -> None:
        request.planned += 1
        self.rows.append(Row(request, request.epoch, request.position))


def _slot(request: Request) -> int:
    assert request.lease is not None, "only an admitted request is in a step"
    return request.lease.slot


def plan_step(worker: ArWorker, settings: Settings, now: float, frame_seconds: float) -> PlannedStep | None:
    """The worker's next step, or None when there is nothing to do.

    Decodes are chosen first, so that a request whose prompt ends in this step decodes from the next one on; prompts
    come in order of admission, within the prefill budget, and are cut at multiples of the page size.
    """
    running = [request for request in worker.requests.values() if not request.generated]
    decodes = [request for request in running if request.decodable]
    prefills = [request for request in running if request.prefilling]
    if not decodes and not prefills:
        return None
    if len(decodes) > settings.max_batch:
        decodes.sort(key=lambda request: request.slack(now, frame_seconds))
        del decodes[settings.max_batch :]
    builder = _Builder(worker)
    budget = max(settings.prefill_budget, worker.page_size)
    for request in prefills:
        tokens = _span(request, budget, worker.page_size)
        if tokens == 0:
            break
        builder.prefill(request, tokens)
        budget -= tokens
    for request in decodes:
        builder.decode(request)
    return builder.finish()


def _span(request: Request, budget: int, page_size: int) -> int:
    """Positions to prefill: what is left of the turn, or as much of it as the budget allows up to a page boundary."""
    left = request.turns[request.turn].shape[1] - request.prefilled
    if left <= budget:
        return left
    return max(0, (request.position + budget) // page_size * page_size - request.position)
