"""The host's record of the slots: pages and lengths, and the check that a plan can be executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ar_worker.sampling import MOST_RANKS
from common.checkpoint import ModelConfig
from common.messages import PROMPT_ROWS, Array, StepPlan


@dataclass(frozen=True)
class Limits:
    """Bounds that plans are checked against. ``max_prefill_tokens`` is per step."""

    slots: int
    pages: int
    page_size: int
    max_prefill_tokens: int
    model: ModelConfig

    @property
    def table_width(self) -> int:
        """Pages of the longest sequence."""
        return -(-self.model.max_seq_len // self.page_size)


@dataclass
class SlotTable:
    """State that follows from the plans alone, by slot."""

    assigned: Array  # bool [slots]
    lengths: Array  # int64 [slots], positions filled
    pages: Array  # int64 [slots, table width], -1 where there is none

    @classmethod
    def empty(cls, limits: Limits) -> SlotTable:
        pages = np.full((limits.slots, limits.table_width), -1, np.int64)
        return cls(np.zeros(limits.slots, bool), np.zeros(limits.slots, np.int64), pages)

    def copy(self) -> SlotTable:
        return SlotTable(self.assigned.copy(), self.lengths.copy(), self.pages.copy())


def apply_plan(plan: StepPlan, arrays: Sequence[Array], table: SlotTable, limits: Limits) -> SlotTable:
    """The table after the plan's releases, assignments and page appends.

    Raises:
        ValueError: the plan or its arrays can't be executed.
    """
    prompt, decodes, appends = _checked_arrays(plan, arrays, limits)
    table = table.copy()
    _require_slots([*plan.released, *(item.slot for item in plan.assigned), *decodes.tolist()], limits)
    for slot in [*plan.released, *(item.slot for item in plan.assigned)]:
        table.assigned[slot], table.lengths[slot] = False, 0
        table.pages[slot] = -1
    for item in plan.assigned:
        if not 1 <= item.sampling.top_k <= MOST_RANKS:
            raise ValueError(f"top_k {item.sampling.top_k} of slot {item.slot} is not within 1..{MOST_RANKS}")
        table.assigned[item.slot] = True
    table.pages[appends[:, 0], appends[:, 1]] = appends[:, 2]
    _check_prompt(prompt, limits.model)
    _check_sequences(plan, decodes, table, limits)
    return table


def _checked_arrays(plan: StepPlan, arrays: Sequence[Array], limits: Limits) -> tuple[Array, Array, Array]:
    if len(arrays) != 3:
        raise ValueError(f"{len(arrays)} arrays, a step plan has 3")
    prompt, decodes, appends = arrays
    tokens = sum(item.tokens for item in plan.prefills)
    if prompt.shape != (PROMPT_ROWS, tokens) or decodes.ndim != 1 or appends.shape[1:] != (3,):
        raise ValueError(f"arrays of shapes {[array.shape for array in arrays]} for {tokens} prefill tokens")
    if tokens > limits.max_prefill_tokens:
        raise ValueError(f"{tokens} prefill tokens, at most {limits.max_prefill_tokens}")
    bounds = np.array([limits.slots, limits.table_width, limits.pages])
    if (appends < 0).any() or (appends >= bounds).any():
        raise ValueError(f"page appends beyond {bounds.tolist()} (slots, pages of a slot, pages)")
    return prompt, decodes, appends


def _require_slots(slots: Sequence[int], limits: Limits) -> None:
    for slot in slots:
        if not 0 <= slot < limits.slots:
            raise ValueError(f"slot {slot} of {limits.slots}")


def _check_prompt(prompt: Array, model: ModelConfig) -> None:
    if prompt.size == 0:
        return
    if prompt[0].min() < 0 or prompt[0].max() >= model.vocab_size:
        raise ValueError(f"a token id is not within 0..{model.vocab_size - 1}")
    if prompt[1:].min() < 0 or prompt[1:].max() >= model.codebook_size:
        raise ValueError(f"a code is not within 0..{model.codebook_size - 1}")


def _check_sequences(plan: StepPlan, decodes: Array, table: SlotTable, limits: Limits) -> None:
    ends = [(item.slot, item.start, item.start + item.tokens) for item in plan.prefills]
    ends += [(slot, length, length + 1) for slot, length in zip(decodes.tolist(), table.lengths[decodes], strict=True)]
    _require_slots([slot for slot, _, _ in ends], limits)
    if len({slot for slot, _, _ in ends}) != len(ends):
        raise ValueError("a slot takes part twice in one step")
    for slot, start, end in ends:
        if not table.assigned[slot]:
            raise ValueError(f"slot {slot} is not assigned")
        if not 0 <= start < end <= limits.model.max_seq_len:
            raise ValueError(f"positions {start} to {end} of slot {slot}, the model has {limits.model.max_seq_len}")
        if (table.pages[slot, : -(-end // limits.page_size)] < 0).any():
            raise ValueError(f"slot {slot} has no page for some of its {end} positions")


def settle(plan: StepPlan, decodes: Array, table: SlotTable) -> None:
    """Count the positions that the step fills."""
    for item in plan.prefills:
        table.lengths[item.slot] = item.start + item.tokens
    table.lengths[decodes] += 1
