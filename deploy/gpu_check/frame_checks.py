"""Checks 5 to 9, of whole frames of S2 Pro's geometry with random weights; they need msgspec, safetensors and pyzmq."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ar_worker.device import Device, Pending, choose_device
from ar_worker.device_state import DeviceState, FrameRows
from ar_worker.kernels.choose import choose_ops
from ar_worker.model import DualAr
from ar_worker.ops import EAGER, Ops
from ar_worker.prefill import PrefillAttention, span_inputs
from ar_worker.rows import FRAME_BUCKETS, RowPolicy
from ar_worker.runner import FrameRunner, KvPool
from ar_worker.slot_table import Limits, SlotTable
from ar_worker.step_rows import plan_prefill
from ar_worker.weights import assemble, expected_shapes
from common.checkpoint import ModelConfig, StackConfig
from common.messages import Array, Prefill
from deploy.gpu_check.results import Context, Result

RANKS, PAGE = 32, 16
FORECAST = {(1, 700): 5.5, (8, 700): 6.0, (64, 700): 8.0, (64, 4096): 18.0}  # ms, fused, in a graph


def geometry(tiny: bool, positions: int) -> ModelConfig:
    """S2 Pro's dimensions, or small ones, for sequences of so many positions."""
    heads, kv, dim, inner, slow, fast = (4, 2, 64, 96, 2, 1) if tiny else (32, 8, 2560, 9728, 36, 4)
    head_dim, codes, begin = (16, 64, 100) if tiny else (128, 4096, 151678)

    def stack(layers: int, norm: bool) -> StackConfig:
        return StackConfig(layers, heads, kv, head_dim, dim, inner, norm, False, False, 1e6, 1e-6)

    vocabulary, end, scaled = begin + codes + 4, begin - 33, True
    return ModelConfig(
        stack(slow, True),
        stack(fast, False),
        vocabulary,
        codes,
        10,
        positions,
        begin,
        begin + codes - 1,
        end,
        True,
        scaled,
        False,
    )


class Bench:
    """A frame runner whose slots all stand at one position."""

    def __init__(self, context: Context, ops: Ops, batch: int, length: int, weights: object = None) -> None:
        self.config, device = geometry(context.tiny, (length // PAGE + 5) * PAGE), context.device
        dtype = torch.float32 if context.tiny else torch.bfloat16
        self.weights = weights or random_weights(self.config, device, dtype)
        limits = Limits(batch, batch * (length // PAGE + 5), PAGE, 64, self.config)
        policy = RowPolicy.choose(device, 1, False, dtype)
        model = DualAr(self.config, self.weights, policy, limits.table_width * PAGE, ops)  # type: ignore[arg-type]
        slow = self.config.slow
        shape = (slow.n_layer, 2, slow.n_kv_head, (limits.pages + 1) * PAGE, slow.head_dim)
        self.pool = torch.zeros(shape, dtype=dtype, device=device)
        state = DeviceState(limits, torch.zeros(batch + 1, slow.dim, dtype=dtype, device=device))
        each = limits.pages // batch
        owned = torch.arange(limits.pages, dtype=torch.int32, device=device).view(batch, each)
        width = min(each, state.pages.shape[1])
        state.pages[:batch, :width] = owned[:, :width]
        state.table[:, 0] = length
        state.table[:, 2] = torch.arange(batch + 1, device=device) * 0x9E3779B97F4A7  # seeds
        self.state, self.model, self.limits = state, model, limits
        output = torch.zeros(3, batch, 11, dtype=torch.int16, device=device)
        self.runner = FrameRunner(model, state, KvPool(self.pool, PAGE), output)
        self._start = state.table.clone()
        self.rows = self._rows(batch, device)

    @staticmethod
    def _rows(batch: int, device: torch.device) -> FrameRows:
        flags = torch.zeros(batch, dtype=torch.bool, device=device)
        return FrameRows(
            torch.arange(batch, device=device), torch.ones(batch, 2, dtype=torch.int64, device=device), flags, flags
        )

    def restart(self) -> None:
        """Back to the first frame."""
        self.state.table.copy_(self._start)

    def run(self) -> None:
        """One frame."""
        self.runner.run_static(self.rows, RANKS)

    def codes(self, run: Callable[[], object]) -> Tensor:
        """The first frame of every slot, int16 [batch, 11]."""
        self.restart()
        run()
        self.runner.publish(len(self.rows.slots), 0)
        return self.runner.output[0].cpu().clone()


def random_weights(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> object:
    """Normal weights of the deviation that a trained model has, made on the device."""
    shapes = expected_shapes(config)

    def fetch(name: str) -> Tensor:
        random = torch.randn(shapes[name], device=device, dtype=dtype)
        return random.mul_(0.02) if random.dim() > 1 else random.mul_(0.02).add_(1)

    torch.manual_seed(0)
    return assemble(config, fetch)


@torch.inference_mode()
def eager_frame(context: Context) -> Iterator[Result]:
    """Check 5: a frame launches all its work without a wait for the device."""
    bench = Bench(context, EAGER, 1, 32 if context.tiny else 700)
    bench.run()
    if context.device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        bench.run()
    finally:
        if context.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    yield Result("frame, eager, no wait", "none", verdict="pass")


@torch.inference_mode()
def captures(context: Context) -> Iterator[Result]:
    """Check 6: time and memory of the graphs of all buckets, largest first."""
    ops, device = choose_ops(context.device), choose_device(context.device.type)
    buckets = (4, 2, 1) if context.tiny else tuple(reversed(FRAME_BUCKETS))
    weights = None
    for bucket in buckets:
        bench = Bench(context, ops, bucket, 32 if context.tiny else 128, weights)
        weights = bench.weights
        before, started = device.free_memory() or 0, time.perf_counter()
        device.capture(bench.run)
        seconds, used = time.perf_counter() - started, before - (device.free_memory() or 0)
        yield context.at_most(f"capture of {bucket} rows", seconds, "s", 1.0, 2)
        yield context.at_most(f"memory of the graph of {bucket} rows", used / 2**20, "MiB", 150, 1.34)


@torch.inference_mode()
def frames(context: Context) -> Iterator[Result]:
    """Check 7: frames eager, in a graph, and in a graph with kernels."""
    device, ops, weights = choose_device(context.device.type), choose_ops(context.device), None
    sizes = [(2, 32)] if context.tiny else list(FORECAST)
    for batch, length in sizes:
        fused = Bench(context, ops, batch, length, weights)
        weights, replay = fused.weights, device.capture(fused.run)
        milliseconds = _timed(context, fused, replay)
        name = f"frame, kernels in a graph, {batch} x {length}"
        yield context.at_most(name, milliseconds, "ms", FORECAST.get((batch, length), 1.0), 1.5)
        if length > 1000:
            continue
        plain = Bench(context, EAGER, batch, length, weights)
        yield Result(f"frame, eager, {batch} x {length}", _timed(context, plain, plain.run), "ms")
        captured = device.capture(plain.run)
        yield Result(f"frame, eager functions in a graph, {batch} x {length}", _timed(context, plain, captured), "ms")
        want = plain.codes(plain.run)
        equal = torch.equal(want, plain.codes(captured))
        yield Result(f"captured codes equal eager ones, {batch}", str(equal), verdict="pass" if equal else "fail")
        same = float((want[:, 0] == fused.codes(replay)[:, 0]).float().mean())
        yield Result(f"kernels draw the eager main codes, {batch}", same, "", 1.0, "pass" if same > 0.7 else "fail")


def _timed(context: Context, bench: Bench, run: Callable[[], object]) -> float:
    bench.restart()
    return context.seconds(run) * 1000


@torch.inference_mode()
def look_ahead(context: Context) -> Iterator[Result]:
    """Check 8: steps launched before the one before is read, beside steps that are waited for one by one."""
    batch, length, count = (2, 32, 6) if context.tiny else (8, 700, 200)
    device = choose_device(context.device.type)
    bench = Bench(context, choose_ops(context.device), batch, length)
    replay = device.capture(bench.run)
    _steps(bench, device, replay, 1, 3)
    alone, together = (_steps(bench, device, replay, ahead, count) for ahead in (0, 1))
    yield Result("step, waited for", alone.wall / count * 1000, "ms")
    yield Result("step, launched ahead", together.wall / count * 1000, "ms")
    idle = 1 - together.busy / together.wall
    good = context.tiny or idle < 0.05
    yield Result("idle share of the GPU, launched ahead", idle, "", 0.05, "pass" if good else "fail")
    equal = torch.equal(alone.codes, together.codes)
    yield Result("codes equal those of the synchronous steps", str(equal), verdict="pass" if equal else "fail")


class Steps(NamedTuple):
    """A run of steps: seconds in all and on the device, and the codes int16 [steps, batch, 11]."""

    wall: float
    busy: float
    codes: Tensor


def _steps(bench: Bench, device: Device, replay: Callable[[], object], ahead: int, count: int) -> Steps:
    """Steps of which ``ahead`` may be launched and not read."""
    bench.restart()
    output, batch, busy = bench.runner.output, len(bench.rows.slots), 0.0
    host, codes = device.host_like(output), []
    pending: deque[tuple[Pending, int]] = deque()
    started = time.perf_counter()
    for step in range(count + ahead):
        if step < count:
            begun, place = device.begin(), step % len(output)
            replay()
            bench.runner.publish(batch, step)
            pending.append((device.copy_out(begun, output[place], host[place]), place))
        if len(pending) > ahead or step >= count:
            done, place = pending.popleft()
            busy += done.wait()
            codes.append(host[place].clone())
    return Steps(time.perf_counter() - started, busy, torch.stack(codes))


@torch.inference_mode()
def prefills(context: Context) -> Iterator[Result]:
    """Check 9: prompts through the slow stack, and a chunk behind 3,584 positions."""
    ops, weights = choose_ops(context.device), None
    # start, tokens, milliseconds expected, times that it passes
    sizes = [(0, 33, 1.0, 1.0)] if context.tiny else [(0, 64, 8, 2), (0, 600, 9, 1.7), (0, 4096, 65, 1.55)]
    sizes += [] if context.tiny else [(3584, 512, 10, 2)]
    for start, tokens, expected, times in sizes:
        bench = Bench(context, ops, 1, start + tokens, weights)
        weights, run = bench.weights, _prefill(bench, start, tokens)
        name = f"prefill of {tokens} behind {start}"
        yield context.at_most(name, context.seconds(run) * 1000, "ms", expected, times)


def _prefill(bench: Bench, start: int, tokens: int) -> Callable[[], object]:
    """A prompt of slot 0 through the slow stack."""
    limits, device = bench.limits, bench.pool.device
    table = SlotTable.empty(limits)
    table.pages[0] = np.arange(limits.table_width)
    plan = plan_prefill([Prefill(0, start, tokens, True)], np.zeros((11, tokens), np.int32), table, limits, 1)

    def put(array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    slow = bench.config.slow
    spans = span_inputs(plan, slow.n_head // slow.n_kv_head, PAGE, put)
    frames, positions, writes = put(plan.prompt), put(plan.positions), put(plan.writes)

    def run() -> None:
        attend = PrefillAttention(bench.pool, PAGE, writes, spans, device.type == "cuda")
        bench.model.slow(bench.model.embed(frames), positions, attend)

    return run
