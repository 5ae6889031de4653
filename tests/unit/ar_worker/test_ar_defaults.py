"""Defaults that follow from the model's size and the processor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ar_worker import defaults
from ar_worker.defaults import available_memory, dtype_of, frame_threads
from ar_worker.rows import HALF_TILE, RowPolicy
from common.cores import cgroup_quota, usable_cores

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_a_second_thread_is_for_models_that_wait_for_memory() -> None:
    assert frame_threads(0, 4_000_000, cores=2)[0] == 1
    assert frame_threads(0, 393_000_000, cores=2)[0] == 2
    assert frame_threads(0, 393_000_000, cores=1)[0] == 1
    assert frame_threads(3, 4_000_000, cores=2) == (3, "configured")


@pytest.mark.parametrize(
    ("device", "parameters", "native", "amx", "want"),
    [
        (CUDA, 4_000_000, False, False, torch.bfloat16),
        (CPU, 393_000_000, True, True, torch.float32),
        (CPU, 393_000_000, False, True, torch.bfloat16),
        (CPU, 393_000_000, False, False, torch.float32),
        (CPU, 4_000_000, False, True, torch.float32),
    ],
)
def test_type_of_the_weights(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, parameters: int, native: bool, amx: bool, want: torch.dtype
) -> None:
    monkeypatch.setattr(defaults, "has_bf16_products", lambda: amx)
    dtype, reason = dtype_of(device, parameters, native)
    assert dtype == want
    assert reason


def test_memory_is_read_where_the_system_tells_it(tmp_path: Path) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 100 kB\nMemAvailable:   77 kB\n")
    assert available_memory(file) == 77 * 1024
    file.write_text("nothing of the kind\n")
    assert available_memory(file) is None
    assert available_memory(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "some words here"}, None),
        ({}, None),
    ],
)
def test_quota_of_a_control_group(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cgroup_quota(tmp_path) == quota
    assert 1 <= usable_cores(tmp_path) <= max(1, int(quota or 10_000))


def test_a_quota_below_one_core_is_one_core(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cores(tmp_path) == 1


@pytest.mark.parametrize("shape", [(256, 512), (1024, 6144)])
def test_rows_in_bf16_do_not_depend_on_how_many_there_are(shape: tuple[int, int]) -> None:
    """Products of other numbers of rows than the tile's round differently at the larger of these shapes."""
    torch.set_num_threads(1)
    policy = RowPolicy.choose(CPU, 1, False, torch.bfloat16)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3 * HALF_TILE, shape[0], generator=generator).bfloat16()
    weight = torch.randn(shape, generator=generator).bfloat16()
    whole = policy.linear(x, weight)
    for rows in (HALF_TILE, 2 * HALF_TILE):
        chosen = torch.randperm(len(x), generator=generator)[:rows]
        assert torch.equal(policy.linear(x[chosen], weight), whole[chosen])
    assert policy.bucket(1) == HALF_TILE
