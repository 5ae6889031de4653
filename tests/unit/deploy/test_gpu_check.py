"""The check of a GPU, run on a CPU with small shapes; its runner; and what it may import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from deploy.gpu_check.__main__ import CHECKS, Check, main, run_apart
from deploy.gpu_check.results import Context

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    env = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(ROOT / "deploy" / "gpu_check.sh"), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_check_runs_on_a_cpu() -> None:
    code, lines = run("--tiny")
    ends = [line for line in lines if "seconds" in line]
    assert [line["check"] for line in ends] == [check.number for check in CHECKS]
    assert [line for line in lines if "died" in line or line.get("verdict") == "fail"] == []
    assert {line["check"] for line in lines if "measured" in line} == {check.number for check in CHECKS}
    assert code == 0


def test_without_a_gpu_a_check_dies_and_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code, lines = run("--only", "1")
    assert code == 1
    assert lines[-1]["died"] == "exit code 1"


def test_checks_beyond_the_budget_are_skipped(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--only", "2,6", "--budget", "1"])
    assert main() == 1
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["check"] for line in lines if "beyond the budget" in line["skipped"]] == [2, 6]


def test_a_check_that_hangs_is_ended_at_its_limit(capfd: pytest.CaptureFixture[str]) -> None:
    assert not run_apart(Check(7, "frames", "frame_checks", "frames", 0.2), tiny=True)
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["died"] == "over its limit of 0.2 s"


def test_verdicts_follow_the_bounds() -> None:
    context = Context(torch.device("cpu"), tiny=False)
    assert [context.at_least("x", value, "TB/s", 10, 0.9).verdict for value in (9, 8.9)] == ["pass", "fail"]
    assert [context.at_most("x", value, "ms", 10, 1.5).verdict for value in (15, 15.1)] == ["pass", "fail"]
    assert context.at_most("x", 5, "ms", 10, 1.5).ratio == 0.5
    assert Context(torch.device("cpu"), tiny=True).at_most("x", 99, "ms", 10, 1.5).verdict == "noted"


def test_checks_of_the_device_and_of_kernels_need_torch_and_numpy_only() -> None:
    code = "import sys; import deploy.gpu_check.device_checks, deploy.gpu_check.__main__;"
    code += "assert not {'msgspec', 'zmq', 'safetensors', 'aiohttp', 'prometheus_client'} & sys.modules.keys()"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
