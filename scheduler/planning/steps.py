"""Planning of an AR step: prompts that are prefilled, sequences that decode, and the pages that this takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from common.config import Scheduler as Settings
from common.messages import PROMPT_ROWS, Array, Assign, Prefill, StepPlan
from scheduler.planning.policy import Policy, Situation
from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker, Row, Sequence, Step

LEAST_PREFILL_SHARE = 0.25  # of a step's time, which prompts may always add


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
        self.spans: list[Array] = []
        self.prompts: list[Request] = []
        self.decodes: list[int] = []
        self.appends: list[tuple[int, int, int]] = []
        self.rows: list[Row] = []
        self.tokens = 0

    def prefill(self, sequence: Sequence, tokens: int) -> None:
        """Add the next ``tokens`` positions of the sequence's turn."""
        request, history, slot = sequence.request, sequence.request.history, sequence.slot
        if not sequence.assigned:
            self.assigned.append(Assign(slot, request.sampling))
            self.appends.extend((slot, index, page) for index, page in enumerate(sequence.pages))
        self.spans.append(history.prompt[:, sequence.prefilled : sequence.prefilled + tokens])
        self.prompts.append(request)
        start = sequence.position
        sequence.position += tokens
        sequence.prefilled += tokens
        self.tokens += tokens
        self._grow(sequence)
        sample = sequence.prompt_left == 0
        window = history.repetition_window if sample else None
        self.prefills.append(Prefill(slot, start, tokens, sample, history.frames, window, len(history.turn_starts)))
        if sample:
            del self.worker.prompts[request.id]
            self.worker.decoders[request.id] = sequence
            self._expect_frame(sequence)
        sequence.assigned = True

    def mark(self) -> list[int]:
        """A state to roll back to."""
        return [self.tokens, *(len(part) for part in self._parts())]

    def roll_back(self, mark: list[int]) -> None:
        """Forget what was added since ``mark``: a prompt at which planning failed."""
        self.tokens = mark[0]
        for part, length in zip(self._parts(), mark[1:], strict=True):
            del part[length:]

    def _parts(self) -> list[list[Any]]:
        return [self.assigned, self.prefills, self.spans, self.prompts, self.appends, self.rows]

    def decode(self, sequences: list[Sequence]) -> None:
        """Feed each sequence's last frame and plan the next."""
        page_size = self.worker.page_size
        for sequence in sequences:  # the hot loop of every step: only these few operations
            sequence.position = position = sequence.position + 1
            if position > len(sequence.pages) * page_size:
                self._grow(sequence)
            self._expect_frame(sequence)
        self.decodes = [sequence.slot for sequence in sequences]

    def finish(self) -> PlannedStep:
        worker = self.worker
        step = Step(worker.steps, self.rows, self.tokens, self.prompts, self.now)
        worker.steps += 1
        worker.in_flight.append(step)
        plan = StepPlan(step.number, worker.released, self.assigned, self.prefills, worker.registration)
        worker.released = []
        prompt = np.concatenate(self.spans, axis=1) if self.spans else np.empty((PROMPT_ROWS, 0), np.int32)
        slots = np.array(self.decodes, np.int32)
        appends = np.array(self.appends, np.int32).reshape(-1, 3)
        return PlannedStep(plan, [prompt, slots, appends])

    def _grow(self, sequence: Sequence) -> None:
        """Take pages for all positions up to the sequence's own."""
        for index in range(len(sequence.pages), self.worker.pages_for(sequence.position)):
            page = self.worker.pages.take()
            sequence.reserved -= 1
            sequence.pages.append(page)
            self.appends.append((sequence.slot, index, page))

    def _expect_frame(self, sequence: Sequence) -> None:
        sequence.planned += 1
        sequence.last_planned_at = self.now
        if sequence.planned == sequence.request.max_frames:
            del self.worker.decoders[sequence.request.id]
        self.rows.append((sequence, sequence.epoch, sequence.position))


class StepPlanner:
    """Plans steps. ``fail``: ends a request at which a decision raised an exception."""

    def __init__(self, settings: Settings, policy: Policy, fail: Callable[[Request], None]) -> None:
        self._settings, self._policy, self._fail = settings, policy, fail

    def plan(self, worker: ArWorker, now: float) -> PlannedStep | None:
        """Plan the worker's next step; None if nothing can be prefilled or decoded.

        Those whose prompts were done before this step may decode. Prompts come in order of admission, those of
        listeners first, within the prefill budget, and are cut at multiples of the page size.
        """
        if not worker.decoders and not worker.prompts:
            return None
        candidates = list(worker.decoders.values())
        builder = _Builder(worker, now)
        if worker.prompts:
            prompts = sorted(worker.prompts.values(), key=lambda sequence: not sequence.request.streaming)
            self._prefill(
                builder, prompts[: self._settings.max_batch], _budget(worker, self._settings, len(candidates))
            )
        if candidates:
            builder.decode(self._choose(worker, candidates, Situation(now, len(builder.rows), builder.tokens)))
        return builder.finish() if builder.prefills or builder.decodes else None

    def _prefill(self, builder: _Builder, prompts: list[Sequence], budget: int) -> None:
        for sequence in prompts:
            mark = builder.mark()
            try:
                tokens = _span(sequence, budget, builder.worker.page_size)
                if tokens == 0:
                    break
                builder.prefill(sequence, tokens)
                budget -= tokens
            except Exception:
                builder.roll_back(mark)
                self._fail(sequence.request)

    def _choose(self, worker: ArWorker, candidates: list[Sequence], situation: Situation) -> list[Sequence]:
        """Choose those who decode; a candidate with whom alone the policy fails is at fault, and is ended."""
        try:
            return self._policy.choose(worker, candidates, situation)
        except Exception:
            healthy = [sequence for sequence in candidates if self._is_healthy(worker, sequence, situation)]
            if len(healthy) == len(candidates):
                raise
        return self._choose(worker, healthy, situation) if healthy else []

    def _is_healthy(self, worker: ArWorker, sequence: Sequence, situation: Situation) -> bool:
        try:
            self._policy.choose(worker, [sequence], situation)
        except Exception:
            self._fail(sequence.request)
            return False
        return True


def _budget(worker: ArWorker, settings: Settings, decodes: int) -> int:
    """Prompt positions of this step: as configured, or as few as keep the step of those who decode within a frame.

    Where that is hardly possible anyway, prompts may make the step longer by a quarter, so that none is shut out.
    """
    most = min(max(settings.prefill_budget, worker.page_size), worker.max_prefill_tokens)
    if decodes == 0:
        return most
    price = worker.step_cost.predict(0, 1) - worker.step_cost.predict(0, 0)
    alone = worker.step_cost.predict(decodes, 0)
    room = max(settings.prefill_share * worker.frame_seconds - alone, LEAST_PREFILL_SHARE * alone)
    affordable = int(room / price) if price > 0 else most
    return min(most, max(worker.page_size, affordable))


def _span(sequence: Sequence, budget: int, page_size: int) -> int:
    """Positions to prefill: the rest of the turn, or as much of it as the budget allows up to a page boundary."""
    if sequence.prompt_left <= budget:
        return sequence.prompt_left
    return max(0, (sequence.position + budget) // page_size * page_size - sequence.position)
