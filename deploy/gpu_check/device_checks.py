"""Checks 0 to 4, of the device and of single kernels; they need torch and numpy only."""

from __future__ import annotations

import math
import platform
import shutil
import subprocess
from collections.abc import Iterator

import torch

from ar_worker.kernels.choose import choose_ops
from ar_worker.ops import EAGER
from deploy.gpu_check.cases import CASES, PAGE, S2_PRO, SMALL, Maker, compare, run_twins
from deploy.gpu_check.results import Context, Result

COPY_RATE = 4.3  # TB/s, of an H200
_SLOW_SHAPES = {"wqkv": (2560, 6144, 9, 6), "wo": (4096, 2560, 6, 4.5), "w13": (2560, 19456, 27, 16)} | {
    "w2": (9728, 2560, 14, 9)
}


def facts(context: Context) -> Iterator[Result]:
    """Check 0: versions and the machine, and what it lacks."""
    yield Result("torch", torch.__version__)
    yield Result("python", platform.python_version())
    try:
        import triton

        yield Result("triton", triton.__version__)
    except ImportError:
        yield Result("triton", "absent: kernels can't be checked", verdict="noted" if context.tiny else "fail")
    yield Result("c compiler", shutil.which("cc") or shutil.which("gcc") or "absent: Triton can't launch kernels")
    yield Result("MPS control", shutil.which("nvidia-cuda-mps-control") or "absent")
    if context.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(context.device)
        yield Result("device", torch.cuda.get_device_name(context.device))
        yield Result("capability", ".".join(map(str, torch.cuda.get_device_capability(context.device))))
        yield Result("free memory", round(free / 2**30, 1), "GiB", round(total / 2**30, 1))
        yield Result("clocks, temperature, power", _smi())


def _smi() -> str:
    query = "--query-gpu=driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw"
    try:
        done = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"
    return done.stdout.strip()


def roofline(context: Context) -> Iterator[Result]:
    """Check 1: copying, matrix products, launches."""
    size = 2**20 if context.tiny else 4 * 10**9
    source = torch.empty(size, dtype=torch.uint8, device=context.device)
    target = torch.empty_like(source)
    seconds = context.seconds(lambda: target.copy_(source))
    yield context.at_least("copy, read and written", 2 * size / seconds / 1e12, "TB/s", COPY_RATE, 0.9)
    for name, dtype, n, tf32, expected in (
        ("bf16 product", torch.bfloat16, 8192, False, 750),
        ("TF32 product", torch.float32, 4096, True, 350),
        ("fp32 product", torch.float32, 4096, False, 50),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        n = 64 if context.tiny else n
        x = torch.randn(n, n, device=context.device).to(dtype)
        seconds = context.seconds(lambda x=x: x @ x)  # type: ignore[misc]
        yield context.at_least(name, 2 * n**3 / seconds / 1e12, "TFLOP/s", expected, 0.85)
    torch.backends.cuda.matmul.allow_tf32 = False
    yield from _launches(context)


def _launches(context: Context) -> Iterator[Result]:
    one, count = torch.zeros(1, device=context.device), 100

    def run() -> None:
        for _ in range(count):
            one.add_(1)

    yield context.at_most("launch, eager", context.seconds(run) / count * 1e6, "us", 5, 2)
    if context.device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        yield context.at_most("launch, in a graph", context.seconds(graph.replay) / count * 1e6, "us", 1.3, 2)


def kernels(context: Context) -> Iterator[Result]:
    """Check 2: each kernel against its twin; on a CPU twins against themselves, which shows that the cases run."""
    ops = choose_ops(context.device)
    if ops is EAGER and not context.tiny:
        yield Result("kernels", "absent", verdict="fail")
        return
    types = {torch.float32: 1e-3} if context.tiny else {torch.float32: 1e-3, torch.bfloat16: 1e-2}
    torch.backends.cuda.matmul.allow_tf32 = False
    for dtype, bound in types.items():
        make = Maker(SMALL if context.tiny else S2_PRO, dtype, context.device)
        for op, cases in CASES.items():
            differences = [compare(run_twins(op, ops, EAGER, case)) for case in cases(make, 64)]
            error, same = max(d.error for d in differences), min(d.same for d in differences)
            good = error < bound and same >= 0.98
            yield Result(f"{op} {dtype}, error", error, "", None, "pass" if good else "fail")
            if op.startswith("draw"):
                yield Result(f"{op} {dtype}, same ids", same, "", 1.0, "pass" if same >= 0.98 else "fail")


def attention(context: Context) -> Iterator[Result]:
    """Check 3: a layer's paged attention over batches and contexts, with pages permuted."""
    ops = choose_ops(context.device)
    expected = {(1, 700): 12.0, (64, 700): 65.0, (1, 32768): 45.0, (64, 4096): 340.0}
    sizes = [(1, 17), (3, 40)] if context.tiny else [(b, n) for b in (1, 8, 64) for n in (128, 700, 4096, 32768)]
    g = SMALL if context.tiny else S2_PRO
    make = Maker(g, torch.float32 if context.tiny else torch.bfloat16, context.device)
    for batch, length in sizes:
        if (batch, length) == (64, 32768):
            continue
        width = -(-length // PAGE)
        kv = torch.zeros(2 * g.kv_heads, batch * width * PAGE, g.head_dim, dtype=make.dtype, device=context.device)
        pages = make.permuted(batch * width).to(torch.int32).view(batch, width)
        q, slots = make.normal(batch, g.heads, g.head_dim), torch.arange(batch, device=context.device)
        at = torch.full((batch,), length - 1, device=context.device)
        seconds = context.seconds(lambda a=(q, kv, pages, slots, at, PAGE): ops.paged_decode(*a))  # type: ignore[misc]
        name, size = f"paged attention {batch} x {length}", kv.nbytes
        if size > 100e6:
            yield context.at_least(f"{name}, bandwidth", size / seconds / 1e12, "TB/s", COPY_RATE, 0.6)
        yield context.at_most(name, seconds * 1e6, "us", expected.get((batch, length), max(20.0, size / 2.6e6)), 1.5)


def products(context: Context) -> Iterator[Result]:
    """Check 4: the slow stack's products in bf16 and FP8."""
    shapes = {"wqkv": (64, 128, 1.0, 1.0)} if context.tiny else _SLOW_SHAPES
    for name, (inner, outer, bf16_us, _fp8_us) in shapes.items():
        for rows in (1, 8, 16, 64):
            x = torch.randn(rows, inner, device=context.device).bfloat16()
            w = torch.randn(outer, inner, device=context.device).bfloat16()
            copies = [w] if context.tiny else [w.clone() for _ in range(math.ceil(400e6 / w.nbytes))]  # past the cache
            bf16 = _each(context, lambda w, x=x: x @ w.t(), copies)
            yield context.at_most(f"{name} x {rows}, bf16", bf16 * 1e6, "us", bf16_us, 1.4)
            if context.tiny or torch.cuda.get_device_capability(context.device) >= (8, 9):
                fp8 = _fp8(context, x, copies)
                yield context.at_least(f"{name} x {rows}, gain of FP8", bf16 / fp8, "", 1.3, 1.0)


def _each(context: Context, run: object, copies: list[torch.Tensor]) -> float:
    def all_of_them() -> None:
        for copy in copies:
            run(copy)  # type: ignore[operator]

    return context.seconds(all_of_them) / len(copies)


def _fp8(context: Context, x: torch.Tensor, copies: list[torch.Tensor]) -> float:
    rows = max(16, x.shape[0])
    x8 = torch.zeros(rows, x.shape[1], device=x.device).to(torch.float8_e4m3fn)
    scale = torch.ones(rows, 1, device=x.device)
    weights = [w.to(torch.float8_e4m3fn) for w in copies]
    columns = torch.ones(1, copies[0].shape[0], device=x.device)

    def run(w: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(x8, w.t(), scale_a=scale, scale_b=columns, out_dtype=torch.bfloat16)

    return _each(context, run, weights)
