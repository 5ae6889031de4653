"""The static frame runner: every frame of a batch bucket runs the same operations on the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ar_worker.attention import DecodeGroup, decode_attention, decode_group
from ar_worker.device_state import DeviceState, FrameRows
from ar_worker.frame import decode_frame
from ar_worker.model import Attend, DualAr, FrameAttention
from ar_worker.ops import HeadNorm, qk_norm_rope_write
from ar_worker.step_inputs import Put
from ar_worker.step_rows import FramePlan, PageGroup


@dataclass(frozen=True)
class KvPool:
    """Keys and values of all sequences, ``[layers, 2, kv_heads, positions, head_dim]``; the last page is scratch."""

    data: Tensor
    page_size: int

    @property
    def scratch(self) -> int:
        """First position of the scratch page."""
        return self.data.shape[3] - self.page_size


class FrameRunner:
    """Runs frames of a model over slots.

    Args:
        output: int16 [steps, rows, 11], a ring of the frames' results: ten codes, and 1 where the end token was drawn.
    """

    def __init__(self, model: DualAr, state: DeviceState, pool: KvPool, output: Tensor) -> None:
        self._model, self._state, self._pool, self.output = model, state, pool, output
        self._fast: dict[int, FrameAttention] = {}
        self._layers = pool.data.flatten(1, 2).unbind(0)

    def put(self, plan: FramePlan, put: Put) -> FrameRows:
        """Give a frame's rows to the step's inputs."""
        return FrameRows(put(plan.slots), put(plan.advance), put(plan.prefilled), put(plan.begins))

    def run(self, rows: FrameRows, groups: list[PageGroup], ranks: int, step: int) -> Tensor:
        """One frame; returns its results, int16 [B, 11], in the ring's place of ``step``."""
        bucket = len(rows.slots)
        fast = self._fast.get(bucket)
        if fast is None:
            fast = self._fast[bucket] = self._model.frame_attention(bucket)
        attention = self._attention(rows, groups) if groups else None
        frames = decode_frame(self._model, self._state, rows, ranks, attention, fast)
        output = self.output[step % len(self.output), :bucket]
        ended = frames[:, :1] == self._model.config.im_end_id
        return output.copy_(torch.cat([frames[:, 1:], ended], 1))

    def _attention(self, rows: FrameRows, groups: list[PageGroup]) -> Callable[[Tensor], Attend]:
        """Makes the slow step's attention from the rows' positions."""
        size, pages, dtype = self._pool.page_size, self._state.pages, self._model.dtype

        def make(positions: Tensor) -> Attend:
            at = rows.slots * pages.shape[1] + positions.div(size, rounding_mode="floor")
            writes = pages.view(-1).index_select(0, at) * size + positions % size
            writes = writes.masked_fill_(rows.prefilled, self._pool.scratch).long()
            made = [
                decode_group(
                    slice(group.start, group.stop),
                    pages[:, : group.pages].index_select(0, rows.slots[group.start : group.stop]),
                    positions[group.start : group.stop],
                    size,
                    dtype,
                )
                for group in groups
            ]
            return self._attend(writes, made)

        return make

    def _attend(self, writes: Tensor, groups: list[DecodeGroup]) -> Attend:
        kv_heads = self._layers[0].shape[0] // 2

        def attend(layer: int, qkv: Tensor, norm: HeadNorm) -> Tensor:
            kv = self._layers[layer]
            qk_norm_rope_write(qkv, norm, kv, writes)
            return decode_attention(qkv[:, : qkv.shape[1] - 2 * kv_heads], kv, groups, self._pool.page_size)

        return attend
