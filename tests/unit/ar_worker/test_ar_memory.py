"""Memory: what fits and what is refused, bounds of a prefill, and a pool that takes no more than is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ar_support import DATA, GREEDY, ROOT, Driver, settings
from fake_device import FakeDevice
from msgspec.structs import replace
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ar_worker.executor import MemoryPlanError
from ar_worker.memory import MemoryNeeds, choose_pages
from ar_worker.ops import HeadNorm
from ar_worker.prefill import MASK_ELEMENTS, PrefillAttention, gathered_bytes, span_inputs
from ar_worker.slot_table import Limits, SlotTable
from ar_worker.step_rows import plan_prefill
from ar_worker.torch_executor import TorchExecutor, lazy_zeros
from common.checkpoint import ModelConfig, StackConfig, load_model_config
from common.messages import Prefill

GIB = 1 << 30


@pytest.fixture(scope="module")
def s2_pro(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    directory = tmp_path_factory.mktemp("s2_pro")
    (directory / "config.json").write_text((DATA / "s2_pro_config.json").read_text())
    return load_model_config(directory)


def test_pages_of_a_large_gpu_are_those_that_fit(s2_pro: ModelConfig) -> None:
    needs = MemoryNeeds(s2_pro, 16, 2, prefill_tokens=1024, graphs=9)
    pages = choose_pages(0, needs, 130 * GIB, 0.85)
    used = (pages + 1) * needs.page_bytes + needs.other_bytes
    assert used <= 0.85 * 130 * GIB < used + needs.page_bytes
    assert needs.page_bytes == 16 * 147_456
    assert 40_000 < pages < 50_000
    needs.check(pages, 130 * GIB)


def test_what_does_not_fit_is_refused_with_numbers(s2_pro: ModelConfig) -> None:
    needs = MemoryNeeds(s2_pro, 16, 2, prefill_tokens=1024, graphs=9)
    pool = r"60000 pages take 131\.84 GiB, the largest prefill .* 9 graphs 1\.32 GiB; 130\.00 GiB"
    with pytest.raises(MemoryPlanError, match=pool):
        choose_pages(60_000, needs, 130 * GIB, 0.85)
    least = r"kv_memory_fraction: 0\.85 of 2\.00 GiB .* holds \d+ pages of 2\.25 MiB; a stream takes 63"
    with pytest.raises(MemoryPlanError, match=least):
        choose_pages(0, needs, 2 * GIB, 0.85)
    assert choose_pages(0, needs, None, 0.85) == 2048
    assert choose_pages(77, needs, None, 0.85) == 77


def test_an_executor_takes_what_its_device_has() -> None:
    device = FakeDevice()
    device.free = 700 << 20
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(pages=0), device)
    assert 0 < executor.pages * 3 * 2 * 2 * 16 * 32 * 4 < 700 << 20
    device.free = 1 << 20
    with pytest.raises(MemoryPlanError):
        TorchExecutor(DATA / "checkpoint_tiny", settings(pages=0), device)
    with pytest.raises(MemoryPlanError, match=r"ar_worker\.pages"):
        TorchExecutor(DATA / "checkpoint_tiny", settings(pages=64), device)


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that an operation makes anew."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        known = {item.untyped_storage().data_ptr() for item in args if isinstance(item, Tensor)}
        for item in out if isinstance(out, tuple | list) else (out,):
            if isinstance(item, Tensor) and item.untyped_storage().data_ptr() not in known:
                self.bytes = max(self.bytes, item.untyped_storage().nbytes())
        return out


def prefill_peak(context: int, chunk: int) -> tuple[int, StackConfig]:
    """Largest tensor that one layer's attention makes for the last ``chunk`` positions of a long context."""
    model = replace(load_model_config(DATA / "checkpoint_tiny"), max_seq_len=context)
    stack, size, width = model.slow, 16, context // 16
    limits = Limits(1, width, size, chunk, model)
    table = SlotTable.empty(limits)
    table.pages[0, :width] = np.arange(width)
    plan = plan_prefill([Prefill(0, context - chunk, chunk, True)], np.zeros((11, chunk), np.int32), table, limits, 4)
    pool = lazy_zeros((1, 2, stack.n_kv_head, (width + 1) * size, stack.head_dim), torch.float32)
    spans = span_inputs(plan, stack.n_head // stack.n_kv_head, size, torch.from_numpy)
    attend = PrefillAttention(pool, size, torch.from_numpy(plan.writes), spans)
    qkv = torch.randn(len(plan.positions), stack.n_head + 2 * stack.n_kv_head, stack.head_dim)
    rotation = torch.ones(len(qkv), 1, stack.head_dim // 2, dtype=torch.complex64)
    with torch.no_grad(), Largest() as largest:
        attend(0, qkv, HeadNorm(None, 1e-6, rotation))
    return largest.bytes, stack


@pytest.mark.parametrize(("context", "chunk"), [(2048, 512), (8192, 512), (32768, 512), (32768, 64)])
def test_a_prefill_never_makes_a_tensor_beyond_its_bound(context: int, chunk: int) -> None:
    peak, stack = prefill_peak(context, chunk)
    rows = chunk * (stack.n_head + 2 * stack.n_kv_head) * stack.head_dim * 4
    assert peak <= max(gathered_bytes(stack, context, 16, 4), 4 * MASK_ELEMENTS, rows)


def test_a_prefill_does_not_grow_with_chunk_times_context() -> None:
    """Four times the context at a fourth of the chunk: the gathered keys and values decide, not the product."""
    (large, _), (small, _) = prefill_peak(32768, 64), prefill_peak(8192, 64)
    assert large <= 4.1 * small


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux' figures of memory")
def test_the_pool_is_resident_only_as_far_as_it_is_used() -> None:
    before = resident()
    executor = TorchExecutor(ROOT / "models" / "mini", settings(pages=16384))
    assert executor.memory_bytes["kv"] > 1 << 30
    Driver(executor, list(range(64))).generate(np.ones((11, 40), int), GREEDY, 3)
    assert resident() - before < 200 << 20


@pytest.mark.parametrize("native", [False, True])
def test_a_sequence_with_nan_leaves_nothing_in_the_pages_that_others_use_again(native: bool) -> None:
    """A broken weight makes NaN of one token; the next sequence over the same pages has the codes of ever."""
    prompt = np.zeros((11, 24), int)
    prompt[0] = np.arange(24) % 7
    clean = TorchExecutor(DATA / "checkpoint_tiny", settings(native=native))
    want, _ = Driver(clean, list(range(64))).generate(prompt, GREEDY, 12)
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(native=native))
    executor._model.weights.embeddings[9] = torch.nan
    driver, poisoned = Driver(executor, list(range(64))), np.full((11, 60), 9)
    poisoned[1:] = 0
    driver.generate(poisoned, GREEDY, 6)
    driver.free.sort()
    got, _ = driver.generate(prompt, GREEDY, 12)
    assert got.tolist() == want.tolist()
    assert executor.pool.isfinite().all()
