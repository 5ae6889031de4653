"""Planning a step of an AR worker: which prompts go on, who decodes, and which pages that takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import PROMPT_ROWS, Array, Assign, Prefill, StepPlan
from scheduler.planning.policy import Policy, Situation
from scheduler.requests.request import Request
from scheduler.resources.workers import ArWorker, Row, Step

LEAST_PREFILL_SHARE = 0.25  # of a step's time, that prompts may always add


class PlannedStep(NamedTuple):
    plan: StepPlan
    arrays: list[Array]  # prompt int32 [11, tokens], decode slots int32 [d], page appends int32 [p, 3]


class _Builder:
    """Collects one step."""

    def __init__(self, worker: ArWorker, now: float) -> None:
        self.worker = worker
        self.now = now
        self.assigned: list[Assign] = []
        self.prefills: list[Prefill] = []
        self.prompts: list[Array] = []
        self.prompted: list[Request] = []
        self.decodes: list[int] = []
        self.appends: list[tuple[int, int, int]] = []
        self.rows: list[Row] = []
        self.tokens = 0

    def prefill(self, request: Request, tokens: int) -> None:
        """Put the next ``tokens`` positions of the request's turn into the step."""
        slot = request.slot
        if not request.assigned:
            self.assigned.append(Assign(slot, request.sampling))
            self.appends.extend((slot, index, page) for index, page in enumerate(request.pages))
            request.assigned = True
        turn = request.turns[request.turn]
        self.prompts.append(turn[:, request.prefilled : request.prefilled + tokens])
        self.prompted.append(request)
        start = request.position
        request.position += tokens
        request.prefilled += tokens
        self.tokens += tokens
        self._grow(request)
        sample = request.prompt_left == 0
        self.prefills.append(Prefill(slot, start, tokens, sample, request.frames, request.recent if sample else None))
        if sample:
            del self.worker.prompts[request.id]
            self.worker.decoders[request.id] = request
            self._expect_frame(request)

    def decode(self, requests: list[Request]) -> None:
        """Feed each request's last frame and ask for the next."""
        page_size = self.worker.page_size
        for request in requests:  # the hot loop of every step: nothing in it but these few operations
            request.position = position = request.position + 1
            if position > len(request.pages) * page_size:
                self._grow(request)
            self._expect_frame(request)
        self.decodes = [request.slot for request in requests]

    def finish(self) -> PlannedStep:
        worker = self.worker
        step = Step(worker.steps, self.rows, self.tokens, self.prompted, self.now)
        worker.steps += 1
        worker.in_flight.append(step)
        plan = StepPlan(step.number, worker.released, self.assigned, self.prefills)
        worker.released = []
        prompt = np.concatenate(self.prompts, axis=1) if self.prompts else np.empty((PROMPT_ROWS, 0), np.int32)
        slots = np.array(self.decodes, np.int32)
        appends = np.array(self.appends, np.int32).reshape(-1, 3)
        return PlannedStep(plan, [prompt, slots, appends])

    def _grow(self, request: Request) -> None:
        """Take pages for all positions up to the request's own."""
        for index in range(len(request.pages), self.worker.pages_for(request.position)):
            page = self.worker.pages.take()
            request.reserved -= 1
            request.pages.append(page)
            self.appends.append((request.slot, index, page))

    def _expect_frame(self, request: Request) -> None:
        request.planned += 1
        request.asked = self.now
        if request.planned == request.max_frames:
            del self.worker.decoders[request.id]
        self.rows.append((request, request.epoch, request.position))


def plan_step(worker: ArWorker, settings: Settings, policy: Policy, now: float, queued: bool) -> PlannedStep | None:
    """The worker's next step, or None when there is nothing to do. ``queued``: somebody waits for admission.

    Who decodes is chosen among those whose prompts are done before this step; prompts come in order of admission, first
    those of listeners, within the prefill budget, and are cut at multiples of the page size.
    """
    if not worker.decoders and not worker.prompts:
        return None
    candidates = list(worker.decoders.values())
    builder = _Builder(worker, now)
    if worker.prompts:
        prompts = sorted(worker.prompts.values(), key=lambda request: not request.streaming)
        _prefill(builder, prompts[: settings.max_batch], _budget(worker, settings, len(candidates)))
    situation = Situation(now, len(builder.rows), builder.tokens, queued)
    builder.decode(policy.choose(worker, candidates, situation))
    return builder.finish()


def _prefill(builder: _Builder, prompts: list[Request], budget: int) -> None:
    for request in prompts:
        tokens = _span(request, budget, builder.worker.page_size)
        if tokens == 0:
            break
        builder.prefill(request, tokens)
        budget -= tokens


def _budget(worker: ArWorker, settings: Settings, decodes: int) -> int:
    """Prompt positions of this step: as configured, or as few as keep the step of those who decode within a frame.

    Where that is hardly possible anyway, prompts may make the step longer by a quarter: nobody is shut out.
    """
    if decodes == 0:
        return max(settings.prefill_budget, worker.page_size)
    price = worker.step_cost.predict(0, 1) - worker.step_cost.predict(0, 0)
    alone = worker.step_cost.predict(decodes, 0)
    room = max(settings.prefill_share * worker.frame_seconds - alone, LEAST_PREFILL_SHARE * alone)
    affordable = int(room / price) if price > 0 else settings.prefill_budget
    return max(worker.page_size, min(settings.prefill_budget, affordable))


def _span(request: Request, budget: int, page_size: int) -> int:
    """Positions to prefill: what is left of the turn, or as much of it as the budget allows up to a page boundary."""
    if request.prompt_left <= budget:
        return request.prompt_left
    return max(0, (request.position + budget) // page_size * page_size - request.position)
