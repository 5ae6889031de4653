"""Kernels against their eager twins, in Triton's interpreter, and compiled for GPUs that are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ar_support import ROOT

from ar_worker.kernels.calls import calls, fell_back, launched, totals
from ar_worker.kernels.choose import choose_ops
from ar_worker.ops import EAGER

linux = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
MOST_SHARED = 99 * 1024  # bytes, of consumer GPUs
CAPABILITIES = (80, 86, 89, 90, 100, 120)
CASES = {"embed_frame": 2, "add_rms_norm": 2, "qk_norm_rope_write": 2, "paged_decode": 2, "swiglu": 1}
CASES |= {"fast_attention": 3, "draw_token": 2, "draw_code": 2}


def lines(*command: str, **environment: str) -> list[dict[str, Any]]:
    """Objects that a process prints."""
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    env = os.environ | {"PYTHONPATH": paths, "TRITON_DEFAULT_FP_FUSION": "1", "OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def interpreted(what: str) -> list[dict[str, Any]]:
    return lines(str(Path(__file__).with_name("interpreted_kernels.py")), what, TRITON_INTERPRET="1")


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "bound", "ops"), [("fp32", 1e-5, set(CASES)), ("fp16", 2e-3, set(CASES) - {"draw_code"})]
)
def test_kernels_agree_with_their_twins(dtype: str, bound: float, ops: set[str]) -> None:
    """Over lengths around tiles and pages, permuted and shared pages, junk beyond every end, ties, both draws."""
    reports = interpreted(dtype)
    twins = [line for line in reports if line["check"] == "twins"]
    assert sorted((line["op"], line["case"]) for line in twins) == sorted(
        (op, case) for op in ops for case in range(CASES[op])
    )
    assert [line for line in twins if line["error"] > bound or line["same"] < 1] == []
    if dtype == "fp32":
        alone = [line for line in reports if line["check"] == "alone"]
        assert [line["equal"] for line in alone] == [True] * 3, "a row's attention depends on the others"
        (unsupported,) = (line for line in reports if line["check"] == "unsupported")
        assert (unsupported["equal"], unsupported["counted"]) == (True, 1)


@linux
@pytest.mark.slow
def test_captured_frames_of_kernels_draw_the_eager_codes() -> None:
    """And every function with a kernel runs as one, but for the draw of codes, for which the interpreter is slow."""
    path, frames = interpreted("frames")
    assert path["replayed"] == 2
    assert path["kernel"] > 100
    assert path["eager"] == 0
    assert frames["kernels"] == frames["eager"]


@linux
@pytest.mark.slow
def test_kernels_compile_without_spills_for_every_capability(tmp_path: Path) -> None:
    """All for sm_90, and the one with asynchronous loads, in which most can go wrong, for all."""
    compiled = lines("-m", "ar_worker.kernels.compile", "90", TRITON_CACHE_DIR=str(tmp_path))
    others = map(str, sorted({*CAPABILITIES} - {90}))
    compiled += lines("-m", "ar_worker.kernels.compile", "paged_decode", *others, TRITON_CACHE_DIR=str(tmp_path))
    assert len(compiled) == 11 + len(CAPABILITIES) - 1
    assert [line for line in compiled if line["spills"] or line["shared"] > MOST_SHARED] == []
    decode = {line["capability"]: line["asynchronous"] for line in compiled if line["kernel"] == "paged_decode"}
    assert decode == dict.fromkeys(CAPABILITIES, True)


def test_a_cpu_runs_the_eager_functions_and_imports_no_kernel() -> None:
    assert choose_ops(torch.device("cpu")) is EAGER
    code = (
        "import sys, ar_worker.torch_executor, ar_worker.metrics; assert 'ar_worker.kernels.launch' not in sys.modules"
    )
    assert lines("-c", code) == []


def test_fall_backs_are_counted_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    before = totals()
    launched("made_up")
    fell_back("made_up", "strided")
    fell_back("made_up", "strided")
    assert (totals()["kernel"] - before["kernel"], totals()["eager"] - before["eager"]) == (1, 2)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    for key in [key for key in calls if key[0] == "made_up"]:
        del calls[key]
