"""Comparison of the native frame with the eager one on the machine at hand, before it may serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ar_worker.executor import StepOutput
from ar_worker.slot_table import Limits
from common.messages import PROMPT_ROWS, Array, Assign, Prefill, Sampling, StepPlan

FRAMES = 4
MOST_SLOTS = 3
TOLERANCE = 1e-3  # of keys and values, relative to their largest
SAMPLINGS = (
    Sampling(temperature=0.0, fast_temperature=0.0, top_p=0.8, top_k=30, seed=1),
    Sampling(temperature=0.8, fast_temperature=0.8, top_p=0.9, top_k=30, seed=2),
    Sampling(temperature=1.2, fast_temperature=0.5, top_p=1.0, top_k=200, seed=3),
)


class Checked(Protocol):
    """The part of an executor that the comparison uses."""

    limits: Limits
    pool: Tensor

    def execute(self, plan: StepPlan, arrays: list[Array]) -> StepOutput:
        """Run a step."""


def differences(executor: Checked, use_native: Callable[[bool], None]) -> str | None:
    """Run a few sequences both ways through free slots; what differs, None if nothing does.

    ``use_native`` chooses the frame that the executor runs. The slots are released at the end.
    """
    slots = list(range(min(MOST_SLOTS, executor.limits.slots, executor.limits.pages // _pages(executor.limits))))
    if not slots:
        return "no room for a comparison"
    use_native(False)
    eager_codes, eager_kv = _run(executor, slots)
    use_native(True)
    codes, kv = _run(executor, slots)
    alone_codes, alone_kv = _run(executor, slots[:1])
    if not np.array_equal(codes, eager_codes):
        return "other codes than the eager frame's"
    error = float((kv - eager_kv).abs().max() / eager_kv.abs().max().clamp(min=1e-6))
    if not error < TOLERANCE:
        return f"keys and values that differ from the eager frame's by {error:.1e}"
    if not (np.array_equal(alone_codes[:, 0], codes[:, 0]) and torch.equal(alone_kv[:, 0], kv[:, 0])):
        return "results that depend on the other rows"
    return None


def _tokens(limits: Limits) -> int:
    """Positions of each prompt: the frames behind it go on to the next page, where there is room."""
    return max(1, min(limits.page_size - 2, limits.max_prefill_tokens // MOST_SLOTS, limits.model.max_seq_len - FRAMES))


def _pages(limits: Limits) -> int:
    return -(-(_tokens(limits) + FRAMES) // limits.page_size)


def _run(executor: Checked, slots: list[int]) -> tuple[Array, Tensor]:
    """Codes [frames, slots, 10], and keys and values [layers, slots, ...] of the sequences."""
    limits, tokens, pages = executor.limits, _tokens(executor.limits), _pages(executor.limits)
    prompts = np.zeros((PROMPT_ROWS, len(slots) * tokens), np.int32)
    prompts[0] = np.random.default_rng(0).integers(0, limits.model.semantic_begin_id, MOST_SLOTS * tokens)[
        : len(slots) * tokens
    ]
    appends = np.array([(slot, page, slot * pages + page) for slot in slots for page in range(pages)], np.int32)
    assigned = [Assign(slot, SAMPLINGS[slot]) for slot in slots]
    prefills = [Prefill(slot, 0, tokens, True) for slot in slots]
    none, no_pages, empty = np.zeros(0, np.int32), np.zeros((0, 3), np.int32), prompts[:, :0]
    steps = [executor.execute(StepPlan(0, [], assigned, prefills), [prompts, none, appends]).codes]
    for _ in range(FRAMES - 1):
        arrays = [empty, np.array(slots, np.int32), no_pages]
        steps.append(executor.execute(StepPlan(0, [], [], []), arrays).codes)
    executor.execute(StepPlan(0, slots, [], []), [empty, none, no_pages])
    span = pages * limits.page_size
    filled = executor.pool[:, :, :, : len(slots) * span].unflatten(3, (len(slots), span))
    return np.stack(steps), filled[..., : tokens + FRAMES - 1, :].movedim(3, 1).clone()
