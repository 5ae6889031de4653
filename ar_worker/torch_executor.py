"""The executor that runs the model: one step plan in, codes out."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ar_worker.defaults import dtype_of, frame_threads
from ar_worker.device import Device, Pending, choose_device
from ar_worker.device_state import Change, DeviceState
from ar_worker.executor import StepOutput
from ar_worker.graphs import GRAPH_RANKS, FrameGraphs
from ar_worker.kernels.choose import choose_ops
from ar_worker.memory import MemoryNeeds, choose_pages
from ar_worker.model import DualAr
from ar_worker.native.binding import NativeFrame
from ar_worker.native.start import find_library, start
from ar_worker.ops import EAGER, Ops
from ar_worker.prefill import PrefillAttention, span_inputs
from ar_worker.rows import RowPolicy
from ar_worker.runner import FrameRunner, KvPool
from ar_worker.sampling import MOST_RANKS, ranks_needed
from ar_worker.slot_table import Limits, SlotTable, apply_plan, settle
from ar_worker.step_inputs import Put, StepInputs
from ar_worker.step_rows import FramePlan, plan_frame, plan_prefill
from ar_worker.weights import load_weights, parameter_count, tensor_bytes
from common.checkpoint import NUM_CODEBOOKS, ModelConfig, load_model_config
from common.cores import usable_cores
from common.messages import PROMPT_ROWS, Array, Assign, Prefill, Sampling, StepPlan

log = logging.getLogger(__name__)

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
MOST_APPENDS = 1 << 20  # pages that one step may append, where slots and context would allow more
BYTES_PER_SLOT = 3 * MOST_RANKS * 4 + 1024  # of a step's inputs, at most: its assignment and its row
BYTES_PER_TOKEN = 512  # of a prefill, with its share of a block's padding


@dataclass(frozen=True)
class ExecutorSettings:
    """Settings of the executor.

    ``device`` "auto": CUDA where there is one. ``dtype`` "auto": see :func:`ar_worker.defaults.dtype_of`.
    ``max_prefill_tokens`` is per step. ``threads``: of PyTorch. ``deterministic``: on CUDA, slower products whose
    results don't depend on the batch (on the CPU they never do). ``native``: frames run in C++ where that is possible,
    in ``frame_threads`` threads (0: see :func:`ar_worker.defaults.frame_threads`). ``graphs``: frames are captured
    where the device has kernels for that. ``pages`` 0: as many as ``kv_memory_fraction`` of the device's free memory
    holds.
    """

    device: str
    dtype: Literal["auto", "fp32", "bf16"]
    slots: int
    pages: int
    page_size: int
    max_prefill_tokens: int
    threads: int
    deterministic: bool
    native: bool = True
    frame_threads: int = 0
    graphs: bool = True
    kv_memory_fraction: float = 0.85


@dataclass(frozen=True)
class Ticket:
    """A launched step: ``output`` int16 [B, 11] on the host is valid once ``pending`` is done."""

    pending: Pending
    output: Array
    order: Array  # row of each result


class TorchExecutor:
    """Runs the Dual-AR model of a checkpoint directory. Sets the process's number of torch threads.

    Raises:
        CheckpointError: the checkpoint can't be used.
        MemoryPlanError: the memory doesn't suffice.
    """

    def __init__(
        self, directory: Path, settings: ExecutorSettings, device: Device | None = None, ops: Ops | None = None
    ) -> None:
        """``device`` and ``ops``: instead of those that the settings choose."""
        torch.set_num_threads(settings.threads)
        config = load_model_config(directory)
        self._device = device or choose_device(settings.device)
        where = self._device.torch
        parameters = parameter_count(config)
        native = find_library(parameters) if settings.native and where.type == "cpu" else None
        dtype, why = dtype_of(where, parameters, native is not None)
        if settings.dtype != "auto":
            dtype, why = DTYPES[settings.dtype], "configured"
        log.info("type of the weights", extra={"dtype": str(dtype), "reason": why})
        self._rows = RowPolicy.choose(where, settings.threads, settings.deterministic, dtype)
        weights = load_weights(directory, config, where, dtype)
        ops = ops or choose_ops(where)
        graphs = settings.graphs and ops is not EAGER
        pages = self._pages(settings, config, dtype, len(self._rows.buckets(settings.slots)) if graphs else 0)
        self.limits = Limits(settings.slots, pages, settings.page_size, settings.max_prefill_tokens, config)
        self._model = DualAr(config, weights, self._rows, self.limits.table_width * settings.page_size, ops)
        self._whole_prefill = where.type == "cuda" and not settings.deterministic
        self._table = SlotTable.empty(self.limits)
        self._ranks = np.zeros(settings.slots + 1, np.int64)
        self._launched = 0
        self._make_state(dtype)
        self._weight_bytes = tensor_bytes(weights) + self._model.table_bytes
        self._native: NativeFrame | None = None
        self._graphs: FrameGraphs | None = None
        if graphs:
            self._graphs = FrameGraphs(self._runner, self._device, self._inputs[0], settings.slots)
        if native is not None:
            threads, why = frame_threads(settings.frame_threads, parameters, usable_cores())
            log.info("threads of a frame", extra={"threads": threads, "reason": why})
            self._native = start(native, (self._model, self._state, self._kv), threads, self, self._use)

    def _pages(self, settings: ExecutorSettings, config: ModelConfig, dtype: torch.dtype, graphs: int) -> int:
        needs = MemoryNeeds(config, settings.page_size, dtype.itemsize, settings.max_prefill_tokens, graphs)
        return choose_pages(settings.pages, needs, self._device.free_memory(), settings.kv_memory_fraction)

    def _make_state(self, dtype: torch.dtype) -> None:
        """Everything that outlives a step."""
        limits, slow, device = self.limits, self.limits.model.slow, self._device.torch
        shape = (slow.n_layer, 2, slow.n_kv_head, (limits.pages + 1) * limits.page_size, slow.head_dim)
        self.pool = lazy_zeros(shape, dtype) if device.type == "cpu" else torch.zeros(shape, dtype=dtype, device=device)
        hidden = torch.zeros(limits.slots + 1, slow.dim, dtype=dtype, device=device)
        self._state = DeviceState(limits, hidden)
        depth, largest = self._device.depth + 1, self._rows.bucket(limits.slots)
        output = torch.zeros(depth, largest, NUM_CODEBOOKS + 1, dtype=torch.int16, device=device)
        self._kv = KvPool(self.pool, limits.page_size)
        self._runner = FrameRunner(self._model, self._state, self._kv, output)
        self._outputs = self._device.host_like(output)
        size = limits.slots * BYTES_PER_SLOT + limits.max_prefill_tokens * BYTES_PER_TOKEN * 2
        size += min(limits.slots * limits.table_width, MOST_APPENDS) * 24 + largest * 64 + 4096
        self._inputs = [StepInputs(host, there) for host, there in self._device.buffers(self._device.depth, size)]

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        return self._device.torch

    @property
    def depth(self) -> int:
        """See :class:`ar_worker.executor.Executor`."""
        return self._device.depth

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Device memory held for good: ``weights``, with their packed copies, and ``kv``."""
        packed = self._native.memory_bytes if self._native else 0
        return {"weights": self._weight_bytes + packed, "kv": self.pool.nbytes}

    @property
    def pages(self) -> int:
        """See :class:`ar_worker.executor.Executor`."""
        return self.limits.pages

    @property
    def frame_path(self) -> str:
        """See :class:`ar_worker.executor.Executor`."""
        return "native" if self._native else "graph" if self._graphs else "eager"

    def warm_up(self) -> None:
        """Capture graphs, then run a prompt and a decode through slot 0, and release it.

        Raises:
            CaptureError: a graph can't be captured.
        """
        if self._graphs:
            with torch.inference_mode():
                self._graphs.capture(self._rows.buckets(self.limits.slots))
        tokens = min(self.limits.page_size, self.limits.max_prefill_tokens, self.limits.model.max_seq_len - 1)
        pages = -(-(tokens + 1) // self.limits.page_size)
        sampling = Sampling(temperature=1.0, fast_temperature=1.0, top_p=1.0, top_k=30, seed=0)
        appends = np.array([(0, page, page) for page in range(pages)], np.int32)
        prompt, none = np.zeros((PROMPT_ROWS, tokens), np.int32), np.zeros(0, np.int32)
        start = StepPlan(0, [], [Assign(0, sampling)], [Prefill(0, 0, tokens, True)])
        self.execute(start, [prompt, none, appends])
        self.execute(StepPlan(0, [], [], []), [prompt[:, :0], np.zeros(1, np.int32), appends[:0]])
        self.execute(StepPlan(0, [0], [], []), [prompt[:, :0], none, appends[:0]])

    def execute(self, plan: StepPlan, arrays: Sequence[Array], arrived: float = 0.0) -> StepOutput:
        """Launch a step and wait for its end."""
        return self.resolve(self.launch(plan, arrays, arrived))

    @torch.inference_mode()
    def launch(self, plan: StepPlan, arrays: Sequence[Array], arrived: float = 0.0) -> Ticket:
        """See :meth:`ar_worker.executor.Executor.launch`. A real device knows when it begins by itself."""
        begun = self._device.begin()
        table = apply_plan(plan, arrays, self._table, self.limits)
        prompt, decodes, appends = arrays
        for item in plan.assigned:
            self._ranks[item.slot] = ranks_needed(item.sampling.top_k)
        inputs = self._inputs[self._launched % len(self._inputs)]
        inputs.begin()
        rows = self._frame_plan(plan, decodes, table)
        frame = [self._frame(rows, inputs.put)] if rows.order.size else []  # first: graphs find it at one place
        work = self._state.changes(plan, appends, inputs.put)
        if plan.prefills:
            work.append(self._prefill(plan, prompt, table, inputs.put))
        work += frame
        self._device.copy_in(*inputs.used)
        for run in work:
            run()
        settle(plan, decodes, table)
        self._table = table
        return self._ticket(begun, rows)

    @torch.inference_mode()
    def resolve(self, ticket: Ticket) -> StepOutput:
        """See :meth:`ar_worker.executor.Executor.resolve`."""
        duration = ticket.pending.wait()
        rows = ticket.output[ticket.order]
        return StepOutput(rows[:, :NUM_CODEBOOKS], rows[:, NUM_CODEBOOKS].astype(np.uint8), duration)

    def _ticket(self, begun: object, rows: FramePlan) -> Ticket:
        place, bucket = self._launched % len(self._outputs), rows.slots.size
        host = self._outputs[place, :bucket]
        pending = self._device.copy_out(begun, self._runner.output[place, :bucket], host)
        self._launched += 1
        return Ticket(pending, host.numpy(), rows.order)

    def _prefill(self, plan: StepPlan, prompt: Array, table: SlotTable, put: Put) -> Change:
        """The forward pass of a step's prefills; leaves the slow output of those that are sampled in the state."""
        slow, size = self.limits.model.slow, self.limits.page_size
        rows = plan_prefill(plan.prefills, prompt, table, self.limits, self._rows.multiple)
        frames, positions, writes = put(rows.prompt), put(rows.positions), put(rows.writes)
        spans = span_inputs(rows, slow.n_head // slow.n_kv_head, size, put)
        last_rows, last_slots = put(rows.last_rows), put(rows.last_slots)

        def run() -> None:
            attend = PrefillAttention(self.pool, size, writes, spans, self._whole_prefill)
            x = self._model.slow(self._model.embed(frames), positions, attend)
            self._state.hidden.index_copy_(0, last_slots, x.index_select(0, last_rows))

        return run

    def _frame_plan(self, plan: StepPlan, decodes: Array, table: SlotTable) -> FramePlan:
        rows = decodes.size + sum(item.sample for item in plan.prefills)
        bucket = rows if self._native else self._rows.bucket(rows)
        return plan_frame(plan.prefills, decodes, table, self.limits, bucket)

    def _frame(self, rows: FramePlan, put: Put) -> Change:
        native, step = self._native, self._launched
        if native is not None:
            output = self._runner.output[step % len(self._runner.output)]
            return lambda: native.run(rows, output)
        given, graphs, bucket = self._runner.put(rows, put), self._graphs, rows.slots.size
        ranks = int(self._ranks[rows.slots].max())
        if graphs is not None and ranks <= GRAPH_RANKS:
            return lambda: graphs.replay(bucket, step)
        return lambda: self._runner.run(given, rows.groups, ranks, step)

    def _use(self, native: NativeFrame | None) -> None:
        self._native = native


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros on the CPU whose memory is taken when it is first written to."""
    values = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
    return torch.from_numpy(values).view(dtype).view(shape)
