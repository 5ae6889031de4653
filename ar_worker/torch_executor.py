"""The executor that runs the model: one step plan in, codes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ar_worker.attention import Group, PagedAttention, causal_mask
from ar_worker.device_state import SlotState
from ar_worker.executor import StepOutput
from ar_worker.frame import draw_frame
from ar_worker.layout import Layout, Samples, build_layout
from ar_worker.model import DualAr
from ar_worker.rows import RowPolicy
from ar_worker.sampling import Noise, ranks_needed
from ar_worker.slot_table import Limits, SlotTable, apply_plan, settle
from ar_worker.weights import load_weights, tensor_bytes
from common.checkpoint import NUM_CODEBOOKS, load_model_config
from common.messages import PROMPT_ROWS, Array, Assign, Prefill, Sampling, StepPlan

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class ExecutorSettings:
    """``auto``: CUDA where there is one, fp32 on the CPU and bf16 on CUDA. ``deterministic``: on CUDA, slower products
    whose results don't depend on the batch (on the CPU they never do). ``max_prefill_tokens`` is per step."""

    device: str
    dtype: Literal["auto", "fp32", "bf16"]
    slots: int
    pages: int
    page_size: int
    max_prefill_tokens: int
    threads: int
    deterministic: bool


class TorchExecutor:
    """Runs the Dual-AR model of a checkpoint directory. Sets the process's number of torch threads.

    Raises:
        CheckpointError: the checkpoint can't be used.
    """

    def __init__(self, directory: Path, settings: ExecutorSettings) -> None:
        torch.set_num_threads(settings.threads)
        config = load_model_config(directory)
        self._limits = Limits(settings.slots, settings.pages, settings.page_size, settings.max_prefill_tokens, config)
        self._device = _device(settings.device)
        dtype = DTYPES[settings.dtype] if settings.dtype != "auto" else _default_dtype(self._device)
        self._rows = RowPolicy.choose(self._device, settings.threads, settings.deterministic)
        weights = load_weights(directory, config, self._device, dtype)
        self._model = DualAr(config, weights, self._rows, self._limits.table_width * settings.page_size)
        slow = config.slow
        shape = (slow.n_layer, 2, slow.n_kv_head, (settings.pages + 1) * settings.page_size, slow.head_dim)
        self._pool = torch.zeros(shape, dtype=dtype, device=self._device)
        self._slots = SlotState(settings.slots, config.im_end_id, self._device)
        self._table = SlotTable.empty(self._limits)
        self._ranks = np.zeros(settings.slots + 1, np.int64)
        self._weight_bytes = tensor_bytes(weights) + self._model.table_bytes

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._device

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Device memory held for good: ``weights`` and ``kv``."""
        return {"weights": self._weight_bytes, "kv": self._pool.nbytes}

    def warm_up(self) -> None:
        """Run a prompt and a decode through slot 0, then release it."""
        tokens = min(self._limits.page_size, self._limits.max_prefill_tokens, self._limits.model.max_seq_len - 1)
        pages = -(-(tokens + 1) // self._limits.page_size)
        sampling = Sampling(temperature=1.0, fast_temperature=1.0, top_p=1.0, top_k=30, seed=0)
        appends = np.array([(0, page, page) for page in range(pages)], np.int32)
        prompt, none = np.zeros((PROMPT_ROWS, tokens), np.int32), np.zeros(0, np.int32)
        start = StepPlan(0, [], [Assign(0, sampling)], [Prefill(0, 0, tokens, True)])
        self.execute(start, [prompt, none, appends])
        self.execute(StepPlan(0, [], [], []), [prompt[:, :0], np.zeros(1, np.int32), appends[:0]])
        self.execute(StepPlan(0, [0], [], []), [prompt[:, :0], none, appends[:0]])

    @torch.inference_mode()
    def execute(self, plan: StepPlan, arrays: Sequence[Array], arrived: float = 0.0) -> StepOutput:
        """Execute one plan; see :class:`ar_worker.executor.Executor`. A real device knows when it begins by itself."""
        started = time.perf_counter()
        table = apply_plan(plan, arrays, self._table, self._limits)
        prompt, decodes, _ = arrays
        self._slots.assign(plan.assigned)
        self._slots.resume(plan.prefills)
        for item in plan.assigned:
            self._ranks[item.slot] = ranks_needed(item.sampling.top_k)
        layout = build_layout(plan, prompt, decodes, table, self._limits, self._rows.multiple)
        frames = self._run(layout)
        settle(plan, decodes, table)
        self._table = table
        codes = frames[:, 1:].astype(np.int16)
        ended = (frames[:, 0] == self._limits.model.im_end_id).astype(np.uint8)
        return StepOutput(codes, ended, time.perf_counter() - started)

    def _run(self, layout: Layout) -> Array:
        """Forward pass and drawing: frames int64 [outputs, 11] on the host."""
        if layout.positions.size == 0:
            return np.zeros((0, 1 + NUM_CODEBOOKS), np.int64)
        frames = torch.cat([self._slots.last_frames(self._put(layout.decode_slots)), self._put(layout.prompt)])
        positions = self._put(layout.positions)
        attend = self._attention(layout, positions)
        x = self._model.slow(self._model.embed(frames), positions, attend)
        if layout.samples.outputs == 0:
            return np.zeros((0, 1 + NUM_CODEBOOKS), np.int64)
        return self._draw(x, layout.samples)[: layout.samples.outputs].cpu().numpy()

    def _draw(self, x: Tensor, samples: Samples) -> Tensor:
        rows, slots = self._put(samples.rows), self._put(samples.slots)
        begins = self._put(samples.begins)
        noise = Noise(self._slots.seeds(slots), self._put(samples.frames), NUM_CODEBOOKS)
        params = self._slots.params(slots, begins, int(self._ranks[samples.slots].max()))
        drawn = draw_frame(self._model, x[rows], params, noise)
        return self._slots.record(slots, drawn, begins)

    def _attention(self, layout: Layout, positions: Tensor) -> PagedAttention:
        slow, size = self._limits.model.slow, self._limits.page_size
        groups, row = [], 0
        for block in layout.groups:
            count, pages = block.pages.shape
            rows = count * block.queries
            at = positions[row : row + rows].view(count, block.queries)
            mask = causal_mask(at, pages * size, slow.n_head // slow.n_kv_head, self._pool.dtype)
            groups.append(Group(self._put(block.pages.reshape(-1)), mask, block.queries))
            row += rows
        return PagedAttention(self._pool, size, self._put(layout.writes), groups)

    def _put(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _default_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32
