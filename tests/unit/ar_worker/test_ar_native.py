"""The native frame: logits of the eager one, its build and cache, and what is refused."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from ar_support import DATA, GREEDY, ROOT, Driver, settings
from safetensors.torch import load_file, save_file
from torch import Tensor

from ar_worker.native import build
from ar_worker.native.binding import NativeError, NativeFrame, exact_type, packed
from ar_worker.native.build import BuildError
from ar_worker.native.check import differences
from ar_worker.step_rows import FramePlan
from ar_worker.torch_executor import TorchExecutor
from common.messages import Sampling

CHECKPOINTS = {
    **{name: DATA / f"checkpoint_{name}" for name in ("tiny", "tiny4096", "long")},
    "mini": ROOT / "models" / "mini",
}
SAMPLING = Sampling(temperature=0.9, fast_temperature=0.8, top_p=0.95, top_k=50, seed=5)


def native_of(executor: TorchExecutor) -> NativeFrame:
    assert executor._native is not None
    return executor._native


def assert_near(got: Tensor, want: Tensor) -> None:
    """Within 2e-6 of the largest: these random models have logits of up to 16, of which that is a few last places."""
    torch.testing.assert_close(got, want, rtol=0, atol=2e-6 * want.abs().max().item())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_logits_are_those_of_the_eager_functions(name: str) -> None:
    """Main and fast logits of some rows, as they are when the same codes were drawn before them."""
    executor = TorchExecutor(CHECKPOINTS[name], settings(native=True))
    driver, model = Driver(executor, list(range(64))), executor._model
    rng = np.random.default_rng(3)
    for slot, length in enumerate((5, 17, 30)):
        prompt = np.zeros((11, length), int)
        prompt[0] = rng.integers(0, model.config.semantic_begin_id, length)
        driver.step(assign={slot: SAMPLING}, prefill=[(slot, 0, prompt, True)])
    slots = np.array([0, 1, 2, 1], np.int64)  # the last is not run again: its hidden state is drawn from
    plan = FramePlan(slots[:3], np.zeros((3, 2), np.int64), np.ones(3, bool), np.zeros(3, bool), [], np.arange(3))
    output = torch.zeros(3, 11, dtype=torch.int16)
    trace = torch.zeros(3, 10, model.config.codebook_size + 1)
    hidden = executor._state.hidden[:3].clone()
    native_of(executor).run(plan, output, trace)
    with torch.inference_mode():
        logits, given = model.head(hidden)
        assert_near(trace[:, 0], logits)
        codes, attend = output.long(), model.frame_attention(3)
        for book in range(1, 10):
            logits = (
                model.fast_first(given, codes[:, 0], attend)
                if book == 1
                else model.fast_next(codes[:, book - 1], attend)
            )
            assert_near(trace[:, book, :-1], logits)


SAMPLINGS = {
    "greedy": GREEDY,
    "usual": SAMPLING,
    "repeating": Sampling(0.1, 0.3, 0.9, 30, 7),
    "all ranks": Sampling(1.3, 1.0, 1.0, 256, 8),
    "best only": Sampling(1.0, 1.0, 0.8, 1, 9),
}


@pytest.mark.parametrize("case", SAMPLINGS)
def test_sampled_codes_equal_those_of_the_eager_frame(case: str) -> None:
    prompt = np.zeros((11, 14), int)
    prompt[0] = np.random.default_rng(len(case)).integers(0, 72, prompt.shape[1])
    executors = [TorchExecutor(CHECKPOINTS["mini"], settings(native=native)) for native in (False, True)]
    eager, native = (Driver(executor, list(range(64))).generate(prompt, SAMPLINGS[case], 40) for executor in executors)
    assert eager[0].tolist() == native[0].tolist()
    assert eager[1].tolist() == native[1].tolist()


def test_packed_matrix_has_every_column_once() -> None:
    matrix = torch.arange(3.0 * 130).view(3, 130)
    tiles = packed(matrix)
    assert tiles.shape == (3, 3, 64)
    assert torch.equal(tiles.transpose(0, 1).flatten(1)[:, :130], matrix)
    assert tiles[2, :, 2:].abs().max() == 0


def test_without_a_compiler_frames_run_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match="no C\\+\\+ compiler"):
        build.library()
    assert TorchExecutor(CHECKPOINTS["tiny"], settings(native=True)).frame_path == "eager"


def test_a_failing_compiler_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho no such language >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BuildError, match="broken failed: no such language"):
        build.library(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_library_is_built_once_per_source_and_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []

    def fake(compiler: str, path: Path) -> None:
        built.append(path)
        path.write_bytes(b"")

    monkeypatch.setattr(build, "_build", fake)
    assert build.library(tmp_path) == build.library(tmp_path) == built[0]
    monkeypatch.setattr(build, "processor", lambda: "another")
    assert build.library(tmp_path) == built[1] != built[0]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="file"):
        build.library(tmp_path / "file" / "cache")


def test_a_library_that_is_none_and_a_type_it_does_not_know_are_refused(tmp_path: Path) -> None:
    executor = TorchExecutor(CHECKPOINTS["tiny"], settings(native=False))
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(NativeError, match="broken"):
        NativeFrame(broken, executor._model, executor._state, executor._kv)
    bf16 = TorchExecutor(CHECKPOINTS["tiny"], settings(native=True, dtype="bf16"))
    assert bf16.frame_path == "eager"


def spoiled_codes(frame: NativeFrame) -> Callable[[FramePlan, Tensor], None]:
    def run(plan: FramePlan, output: Tensor) -> None:
        NativeFrame.run(frame, plan, output)
        output[0, 3] += 1

    return run


def spoiled_cache(executor: TorchExecutor, in_company: bool) -> Callable[[FramePlan, Tensor], None]:
    frame = native_of(executor)

    def run(plan: FramePlan, output: Tensor) -> None:
        NativeFrame.run(frame, plan, output)
        if not in_company:
            executor.pool[0, 0, 0, 16] += 0.5  # the last position that the comparison fills: no code depends on it
        elif plan.order.size > 1:
            executor.pool[0, 0, 0, 16] *= 1 + 1e-6

    return run


@pytest.mark.parametrize(
    ("fault", "found"),
    [("codes", "other codes"), ("cache", "keys and values"), ("company", "depend on the other rows")],
)
def test_the_comparison_finds_a_wrong_frame(monkeypatch: pytest.MonkeyPatch, fault: str, found: str) -> None:
    executor = TorchExecutor(CHECKPOINTS["tiny"], settings(native=True))
    native = native_of(executor)

    def use(native_frame: bool) -> None:
        executor._native = native if native_frame else None

    assert differences(executor, use) is None
    run = spoiled_codes(native) if fault == "codes" else spoiled_cache(executor, fault == "company")
    monkeypatch.setattr(native, "run", run)
    assert found in (differences(executor, use) or "")


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    prompt = np.zeros((11, 40), int)
    prompt[0] = np.arange(40) % 60
    runs = []
    for count in (1, threads):
        executor = TorchExecutor(CHECKPOINTS["mini"], settings(native=True, frame_threads=count))
        assert native_of(executor).threads == count
        driver = Driver(executor, list(range(64)))
        driver.step(assign={1: SAMPLING, 2: GREEDY}, prefill=[(1, 0, prompt, True), (2, 0, prompt[:, :9], True)])
        codes = [driver.step(decode={1: 40 + frame, 2: 9 + frame}).codes.tolist() for frame in range(12)]
        runs.append((codes, executor.pool[:, :, :, : 6 * 16].clone()))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([1.0, 0.5, 2.0**-20], torch.bfloat16),
        ([1.0, 1.0009765625], torch.float16),  # 11 bits
        ([1.0009765625, 2.0**-100], torch.float32),
        ([0.1], torch.float32),
        ([70_000.0 * 2**20], torch.float32),
    ],
)
def test_weights_are_kept_in_the_least_type_that_holds_them_exactly(values: list[float], want: torch.dtype) -> None:
    matrices = [torch.tensor([values]), torch.ones(2, 2)]
    assert exact_type(matrices, lambda number: True) == want
    assert exact_type(matrices, lambda number: number == 0) == torch.float32


def test_bundled_models_keep_the_type_of_their_files() -> None:
    for name, want in (("tiny", torch.bfloat16), ("mini", torch.float16)):
        executor = TorchExecutor(CHECKPOINTS[name], settings(native=True))
        assert native_of(executor).weight_type == want


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounded_weights_give_the_codes_of_the_same_weights_in_fp32(dtype: torch.dtype, tmp_path: Path) -> None:
    """Each way of reading weights, by a model whose values fit the type."""
    shutil.copy(DATA / "checkpoint_tiny" / "config.json", tmp_path)
    stored = {k: v for path in (DATA / "checkpoint_tiny").glob("*.safetensors") for k, v in load_file(path).items()}
    fine = {name: value.float() + (1e-4 if dtype == torch.float32 else 0.0) for name, value in stored.items()}
    save_file({name: value.to(dtype) for name, value in fine.items()}, tmp_path / "model.safetensors")
    prompt = np.ones((11, 12), int)
    executors = [TorchExecutor(tmp_path, settings(native=native)) for native in (False, True)]
    assert (native_of(executors[1]).weight_type == torch.float32) == (dtype == torch.float32)
    eager, native = (Driver(one, list(range(64))).generate(prompt, SAMPLING, 10)[0] for one in executors)
    assert eager.tolist() == native.tolist()


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="builds for x86-64")
@pytest.mark.parametrize("target", ["haswell", "x86-64"])
def test_older_processors_get_the_same_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """AVX2 without AVX-512, and neither."""
    monkeypatch.setattr(build, "FOR_PROCESSOR", ((f"-march={target}",),))
    monkeypatch.setattr(build, "cache_directory", lambda: tmp_path)
    prompt = np.ones((11, 20), int)
    executors = [TorchExecutor(CHECKPOINTS["mini"], settings(native=native)) for native in (False, True)]
    assert executors[1].frame_path == "native"
    eager, native = (Driver(one, list(range(64))).generate(prompt, SAMPLING, 20)[0] for one in executors)
    assert eager.tolist() == native.tolist()


def test_a_compiler_that_knows_no_native_target_builds_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "plain"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *=native*) echo no such target >&2; exit 1;; esac\n'
        'for output; do :; done\ntouch "$output"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert build.library(tmp_path / "cache").exists()
