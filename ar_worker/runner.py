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
from ar_worker.ops import HeadNorm
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
        self._frame = torch.zeros(output.shape[1:], dtype=torch.int64, device=output.device)

    def put(self, plan: FramePlan, put: Put) -> FrameRows:
        """Give a frame's rows to the step's inputs."""
        return FrameRows(put(plan.slots), put(plan.advance), put(plan.prefilled), put(plan.begins))

    def run(self, rows: FrameRows, groups: list[PageGroup], ranks: int, step: int) -> None:
        """One frame into the ring's place of ``step``; the decodes' attention is grouped by the pages they read."""
        self._run(rows, self._grouped(rows, groups) if groups else None, ranks)
        self.publish(len(rows.slots), step)

    def run_static(self, rows: FrameRows, ranks: int) -> None:
        """One frame whose operations and shapes depend on the number of rows alone; :meth:`publish` does the rest."""
        self._run(rows, self._paged(rows), ranks)

    def publish(self, bucket: int, step: int) -> None:
        """Copy the last frame's results, ``bucket`` rows, to the ring's place of ``step``."""
        self.output[step % len(self.output), :bucket] = self._frame[:bucket]

    def _run(self, rows: FrameRows, attention: Callable[[Tensor], Attend] | None, ranks: int) -> None:
        bucket = len(rows.slots)
        fast = self._fast.get(bucket)
        if fast is None:
            fast = self._fast[bucket] = self._model.frame_attention(bucket)
        frames = decode_frame(self._model, self._state, rows, ranks, attention, fast)
        ended = frames[:, :1] == self._model.config.im_end_id
        torch.cat([frames[:, 1:], ended], 1, out=self._frame[:bucket])

    def _writes(self, rows: FrameRows, positions: Tensor) -> Tensor:
        """Positions in the pool of the rows' keys and values: the scratch page for rows that a prefill has run."""
        size, pages = self._pool.page_size, self._state.pages
        at = rows.slots * pages.shape[1] + positions.div(size, rounding_mode="floor")
        writes = pages.view(-1).index_select(0, at) * size + positions % size
        return writes.masked_fill_(rows.prefilled, self._pool.scratch)

    def _paged(self, rows: FrameRows) -> Callable[[Tensor], Attend]:
        ops, pages, size = self._model.ops, self._state.pages, self._pool.page_size

        def make(positions: Tensor) -> Attend:
            def attend(q: Tensor, kv: Tensor) -> Tensor:
                return ops.paged_decode(q, kv, pages, rows.slots, positions, size)

            return self._attend(self._writes(rows, positions), attend)

        return make

    def _grouped(self, rows: FrameRows, groups: list[PageGroup]) -> Callable[[Tensor], Attend]:
        pages, size = self._state.pages, self._pool.page_size

        def group(of: PageGroup, positions: Tensor) -> DecodeGroup:
            inside = slice(of.start, of.stop)
            read = pages[:, : of.pages].index_select(0, rows.slots[inside])
            return decode_group(inside, read, positions[inside], size, self._model.dtype)

        def make(positions: Tensor) -> Attend:
            made = [group(of, positions) for of in groups]
            width = self._model.config.slow.n_head * self._model.config.slow.head_dim
            out = self._pool.data.new_zeros(len(positions), width)
            return self._attend(self._writes(rows, positions), lambda q, kv: decode_attention(q, kv, made, size, out))

        return make

    def _attend(self, writes: Tensor, attend: Callable[[Tensor, Tensor], Tensor]) -> Attend:
        """Norm, rotation and writing, then ``attend`` of the queries over a layer's pool."""
        kv_heads = self._layers[0].shape[0] // 2
        write = self._model.ops.qk_norm_rope_write

        def layer_attend(layer: int, qkv: Tensor, norm: HeadNorm) -> Tensor:
            kv = self._layers[layer]
            write(qkv, norm, kv, writes)
            return attend(qkv[:, : qkv.shape[1] - 2 * kv_heads], kv)

        return layer_attend
