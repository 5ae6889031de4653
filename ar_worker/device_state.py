"""State on the device from step to step, besides keys and values: tensors indexed by slot.

One more slot, the scratch slot, belongs to padding rows. Its pages are the scratch page, and its hidden state is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ar_worker.sampling import LEAST_TEMPERATURE, MOST_RANKS, Filter, FrameParams, mixed_seed, rank_limits
from ar_worker.slot_table import Limits
from ar_worker.step_inputs import Put
from common.messages import PROMPT_ROWS, REPETITION_WINDOW, Array, Assign, Prefill, Sampling, StepPlan

Change: TypeAlias = Callable[[], object]

REPETITION_TEMPERATURE = 1.0
REPETITION_TOP_P = 0.9

_LENGTH, _FRAME, _SEED = 0, 1, 2
_WINDOW = slice(3, 3 + REPETITION_WINDOW)
_LAST = slice(_WINDOW.stop, _WINDOW.stop + PROMPT_ROWS)


class FrameRows(NamedTuple):
    """The rows of a frame: decodes, rows whose slow output a prefill left, and padding."""

    slots: Tensor  # int64 [B]
    advance: Tensor  # int64 [B, 2], what to add to length and frame number
    prefilled: Tensor  # bool [B], the slow output is the slot's hidden state; true of padding
    begins: Tensor  # bool [B], begins a turn, with an empty repetition window


class Taken(NamedTuple):
    """State of the slots of a step's rows."""

    counts: Tensor  # int64 [B, 2], length and frame number
    seed: Tensor  # int64 [B], mixed
    window: Tensor  # int64 [B, 10], recent main tokens
    last: Tensor  # int64 [B, 11], last frame

    @property
    def frame(self) -> Tensor:
        """Number of the frame to be drawn, int64 [B]."""
        return self.counts[:, 1]


class DeviceState:
    """Page table, lengths, sampling parameters, repetition window and last frame of each slot.

    A slot whose last frame begins with the end token has ended: until a prefill it draws nothing but end tokens, and
    its window stands still. So a decode planned before the end was known leaves no trace.
    """

    def __init__(self, limits: Limits, hidden: Tensor) -> None:
        """``hidden`` [slots + 1, dim], zeros: room for the slow output of prefills."""
        device, slots, width = hidden.device, limits.slots, limits.table_width
        self._im_end_id, self._width = limits.model.im_end_id, width
        self._positions = width * limits.page_size
        self.hidden = hidden
        self.pages = torch.full((slots + 1, width), limits.pages, dtype=torch.int32, device=device)
        self.table = torch.zeros(slots + 1, _LAST.stop, dtype=torch.int64, device=device)
        self.temperatures = torch.ones(slots + 1, 3, device=device)  # of the draws: slow, slow again, fast
        self.limits = torch.ones(slots + 1, 3, MOST_RANKS, device=device)  # of the draws: slow, slow again, fast

    # Changes that a plan makes ---------------------------------------------------------------------------------------

    def changes(self, plan: StepPlan, appends: Array, put: Put) -> list[Change]:
        """Changes by a plan before its prefills and decodes, in order; ``appends`` int [n, 3] (slot, index, page)."""
        changes = []
        if plan.assigned:
            changes.append(self.assign(plan.assigned, put))
        if len(appends):
            changes.append(self._append_pages(appends, put))
        if plan.prefills:
            changes.append(self._fill(plan.prefills, put))
        resumed = [item for item in plan.prefills if item.recent is not None]
        if resumed:
            changes.append(self._resume(resumed, put))
        return changes

    def assign(self, items: Sequence[Assign], put: Put) -> Change:
        """Starts new sequences."""
        rows = np.zeros((len(items), _LAST.stop), np.int64)
        rows[:, _SEED] = [mixed_seed(item.sampling.seed) for item in items]
        temperatures_of = [_temperatures(item.sampling) for item in items]
        kept = [_limits(item.sampling) for item in items]
        slots, table = put(np.array([item.slot for item in items], np.int64)), put(rows)
        temperatures = put(np.maximum(np.array(temperatures_of, np.float32), np.float32(LEAST_TEMPERATURE)))
        bounds = put(torch.stack(kept).numpy())

        def apply() -> None:
            self.table.index_copy_(0, slots, table)
            self.temperatures.index_copy_(0, slots, temperatures)
            self.limits.index_copy_(0, slots, bounds)

        return apply

    def _append_pages(self, appends: Array, put: Put) -> Change:
        at = put(appends[:, 0].astype(np.int64) * self._width + appends[:, 1])
        pages = put(appends[:, 2].astype(np.int32))
        return lambda: self.pages.view(-1).index_copy_(0, at, pages)

    def _fill(self, items: Sequence[Prefill], put: Put) -> Change:
        """Sets length and frame number behind prefills."""
        counts = put(np.array([(item.start + item.tokens, item.frame + item.turn) for item in items], np.int64))
        slots = put(np.array([item.slot for item in items], np.int64))
        return lambda: self.table[:, :_SEED].index_copy_(0, slots, counts)

    def _resume(self, items: Sequence[Prefill], put: Put) -> Change:
        """Fills the windows of turns that go on behind a prefill."""
        windows = put(np.array([_window(item.recent or []) for item in items], np.int64))
        slots = put(np.array([item.slot for item in items], np.int64))
        return lambda: self.table[:, _WINDOW].index_copy_(0, slots, windows)

    def positions(self, taken: Taken) -> Tensor:
        """Positions of the rows' last frames in their sequences, int64 [B]."""
        return taken.counts[:, 0].clamp(max=self._positions - 1)

    def take(self, slots: Tensor) -> Taken:
        """State of ``slots`` [B]."""
        rows = self.table.index_select(0, slots)
        return Taken(rows[:, :_SEED], rows[:, _SEED], rows[:, _WINDOW], rows[:, _LAST])

    def params(self, rows: FrameRows, taken: Taken, ranks: int) -> FrameParams:
        """Sampling parameters of the next frame, for ``ranks`` candidates."""
        temperatures = self.temperatures.index_select(0, rows.slots)
        bounds = self.limits[..., :ranks].index_select(0, rows.slots)
        return FrameParams(
            Filter(temperatures[:, :2, None], bounds[:, :2]),
            Filter(temperatures[:, 2:], bounds[:, 2]),
            taken.window,
            ~rows.begins,
            ranks,
        )

    def record(self, rows: FrameRows, taken: Taken, frames: Tensor) -> Tensor:
        """Take in drawn frames int64 [B, 11]; returns them, with ended slots kept ended.

        The frame that begins a turn empties the slot's window and does not enter it.
        """
        going_on = (taken.last[:, :1] != self._im_end_id).logical_or_(rows.begins[:, None])
        frames = torch.where(going_on, frames, taken.last)
        moved = torch.cat([taken.window[:, 1:], frames[:, :1]], 1)
        window = torch.where(frames[:, :1] == self._im_end_id, taken.window, moved)
        window.masked_fill_(rows.begins[:, None], 0)
        counts = taken.counts + rows.advance
        self.table.index_copy_(0, rows.slots, torch.cat([counts, taken.seed[:, None], window, frames], 1))
        return frames


def _temperatures(sampling: Sampling) -> tuple[float, float, float]:
    """Of the draws slow, slow again, and fast; greedy is greedy for both stacks."""
    fast = sampling.fast_temperature if sampling.temperature > 0 else 0.0
    return sampling.temperature, REPETITION_TEMPERATURE, fast


def _limits(sampling: Sampling) -> Tensor:
    """Of the draws slow, slow again, and fast; a greedy one keeps the best only. float32 [3, MOST_RANKS]"""
    slow, _, fast = _temperatures(sampling)
    top_k = torch.tensor([1 if t == 0 else sampling.top_k for t in (slow, slow, fast)])
    top_p = torch.tensor([sampling.top_p, REPETITION_TOP_P, sampling.top_p])
    return rank_limits(top_p[:, None], top_k[:, None], MOST_RANKS)


def _window(recent: Sequence[int]) -> list[int]:
    recent = list(recent[-REPETITION_WINDOW:])
    return [0] * (REPETITION_WINDOW - len(recent)) + recent
