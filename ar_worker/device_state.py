"""What lives on the device from step to step, besides keys and values: tensors indexed by slot."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ar_worker.frame import FrameParams
from ar_worker.sampling import LEAST_TEMPERATURE, MOST_RANKS, Filter, limits
from common.messages import PROMPT_ROWS, REPETITION_WINDOW, Assign, Prefill, Sampling

REPETITION_TEMPERATURE = 1.0
REPETITION_TOP_P = 0.9


class SlotState:
    """Sampling parameters, repetition window and last frame of each slot; one more row for padding.

    A slot whose last frame begins with the end token has ended: until a prefill it draws nothing but end tokens, and
    its window stands still. So a decode planned before the end was known leaves no trace.
    """

    def __init__(self, slots: int, im_end_id: int, device: torch.device) -> None:
        self._im_end_id = im_end_id
        self._temperatures = torch.ones(slots + 1, 2, device=device)  # slow, fast
        self._limits = torch.ones(slots + 1, 3, MOST_RANKS, device=device)  # of the draws: slow, slow again, fast
        self._seeds = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self._windows = torch.zeros(slots + 1, REPETITION_WINDOW, dtype=torch.int64, device=device)
        self._frames = torch.zeros(slots + 1, PROMPT_ROWS, dtype=torch.int64, device=device)

    def assign(self, items: Sequence[Assign]) -> None:
        """Start new sequences."""
        if not items:
            return
        sampling = [item.sampling for item in items]
        slots = torch.tensor([item.slot for item in items], device=self._seeds.device)
        pairs = [_temperatures(item) for item in sampling]
        self._put(self._temperatures, slots, [[max(t, LEAST_TEMPERATURE) for t in pair] for pair in pairs])
        kept = [_limits(item, pair) for item, pair in zip(sampling, pairs, strict=True)]
        self._limits[slots] = torch.stack(kept).to(slots.device)
        self._put(self._seeds, slots, [_wrapped(item.seed) for item in sampling])
        self._windows[slots] = 0
        self._frames[slots] = 0

    def resume(self, prefills: Sequence[Prefill]) -> None:
        """Fill the windows of sequences whose turn goes on behind a prefill."""
        for item in prefills:
            if item.recent is not None:
                recent = item.recent[-REPETITION_WINDOW:]
                window = [0] * (REPETITION_WINDOW - len(recent)) + recent
                self._windows[item.slot] = torch.tensor(window, device=self._windows.device)

    def last_frames(self, slots: Tensor) -> Tensor:
        """int64 [D, 11] of slots [D]."""
        return self._frames[slots]

    def seeds(self, slots: Tensor) -> Tensor:
        return self._seeds[slots]

    def params(self, slots: Tensor, begins: Tensor, ranks: int) -> FrameParams:
        """How to draw the next frame of slots [S]; ``begins`` bool [S]: it begins a turn, with an empty window."""
        slow_temperature, fast_temperature = self._temperatures.index_select(0, slots).split(1, 1)
        slow, again, fast = self._limits[..., :ranks].index_select(0, slots).unbind(1)
        return FrameParams(
            Filter(slow_temperature, slow),
            Filter(REPETITION_TEMPERATURE, again),
            Filter(fast_temperature, fast),
            self._windows.index_select(0, slots),
            ~begins,
            ranks,
        )

    def record(self, slots: Tensor, frames: Tensor, begins: Tensor) -> Tensor:
        """Take in what was drawn: frames int64 [S, 11] of slots [S]; returns them, with ended slots kept ended.

        ``begins`` as for :meth:`params`: such a frame empties the slot's window and does not enter it.
        """
        last, windows = self._frames[slots], self._windows[slots]
        going_on = begins | (last[:, 0] != self._im_end_id)
        frames = torch.where(going_on[:, None], frames, last)
        moved = torch.cat([windows[:, 1:], frames[:, :1]], 1)
        enters = frames[:, :1] != self._im_end_id
        windows = torch.where(enters, moved, windows)
        self._windows[slots] = windows.masked_fill_(begins[:, None], 0)
        self._frames[slots] = frames
        return frames

    @staticmethod
    def _put(target: Tensor, slots: Tensor, values: Sequence[object]) -> None:
        target[slots] = torch.tensor(values, dtype=target.dtype, device=target.device)


def _temperatures(sampling: Sampling) -> tuple[float, float]:
    """Slow and fast; greedy is greedy for both."""
    return sampling.temperature, sampling.fast_temperature if sampling.temperature > 0 else 0.0


def _limits(sampling: Sampling, temperatures: tuple[float, float]) -> Tensor:
    """Of the draws slow, slow again, and fast; a greedy one keeps the best only. float32 [3, MOST_RANKS]"""
    slow, fast = temperatures
    top_k = torch.tensor([1 if t == 0 else sampling.top_k for t in (slow, slow, fast)])
    top_p = torch.tensor([sampling.top_p, REPETITION_TOP_P, sampling.top_p])
    return limits(top_p[:, None], top_k[:, None], MOST_RANKS)


def _wrapped(seed: int) -> int:
    """A seed of any size as a signed 64-bit number."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)
