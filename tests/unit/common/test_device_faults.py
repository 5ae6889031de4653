"""Which errors cost a worker its GPU, and whom it takes along."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from common import device_faults
from common.config import resolve
from common.device_faults import EXIT_CODE, Fault, classify, kill_worker, sharing
from common.process import Process

HINT = "\nCUDA kernel errors might be asynchronously reported at some other API call.\nCompile with TORCH_USE_CUDA_DSA."


class AcceleratorError(RuntimeError):
    """As later versions of torch raise it."""

    def __init__(self, text: str, error_code: int) -> None:
        super().__init__(text)
        self.error_code = error_code


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: device-side assert triggered",
        "CUDA error: unspecified launch failure",
        "CUDA error: the launch timed out and was terminated",
        "CUDA error: misaligned address",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        "CUDA error: the remote procedural call between the MPS server and the MPS client failed",
        "CUDA error: the MPS client has been terminated by the server",
        "Triton Error [CUDA]: an illegal memory access was encountered",
    ],
)
def test_errors_after_which_the_device_is_lost(text: str) -> None:
    assert classify(RuntimeError(text + HINT)) is Fault.STICKY


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: MPS server is not ready to accept new MPS client requests",
        "CUDA error: the hardware resources required to create MPS client have been exhausted",
    ],
)
def test_mps_that_takes_no_client_now_is_no_reason_to_end_others(text: str) -> None:
    assert classify(RuntimeError(text)) is Fault.NOT_READY


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: invalid argument"),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        ValueError("a plan may not say: CUDA error: misaligned address"),
        KeyError("slot"),
        AcceleratorError("CUDA error: out of memory", 2),
    ],
)
def test_other_errors_say_nothing_of_the_device(error: Exception) -> None:
    assert classify(error) is None


def test_the_number_decides_where_the_words_are_others() -> None:
    assert classify(AcceleratorError("CUDA-Fehler", 700)) is Fault.STICKY
    assert classify(AcceleratorError("CUDA-Fehler", 807)) is Fault.NOT_READY


def test_the_error_behind_an_error_counts() -> None:
    sticky = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(ValueError, match="decode") as caused:
        raise ValueError("can't decode") from sticky
    assert classify(caused.value) is Fault.STICKY
    met_while_cleaning_up = KeyError("slot")
    met_while_cleaning_up.__context__ = sticky
    assert classify(met_while_cleaning_up) is Fault.STICKY


def test_workers_on_one_device_go_together_and_others_do_not() -> None:
    assert sharing(resolve(), "ar_worker") == ["vocoder_worker"]
    same = resolve(None, ["ar_worker.device=cuda:0", "vocoder_worker.device=auto", "ar_worker.count=2"])
    assert sorted(sharing(same, "vocoder_worker")) == ["ar_worker", "ar_worker-2"]
    apart = resolve(None, ["ar_worker.device=cuda:0", "vocoder_worker.device=cuda:1"])
    assert sharing(apart, "ar_worker") == []
    assert sharing(resolve(), "ar_worker-far") == [], "a worker for a scheduler elsewhere has a name of its own"


class ExitedError(Exception):
    """What os._exit is replaced by."""


@pytest.mark.parametrize(
    ("error", "code", "killed", "paused"),
    [
        (RuntimeError("CUDA error: misaligned address"), EXIT_CODE, ["vocoder_worker"], []),
        (RuntimeError("CUDA error: MPS server is not ready to accept"), EXIT_CODE, [], [device_faults.NOT_READY_PAUSE]),
        (RuntimeError("CUDA error: invalid argument"), 1, [], []),
    ],
)
def test_a_worker_leaves_with_the_status_and_the_company_that_its_error_asks_for(
    error: RuntimeError,
    code: int,
    killed: list[str],
    paused: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def exit_now(status: int) -> None:
        raise ExitedError(status)

    seen_killed: list[str] = []
    seen_paused: list[float] = []
    monkeypatch.setattr(device_faults.os, "_exit", exit_now)
    monkeypatch.setattr(device_faults.time, "sleep", seen_paused.append)
    monkeypatch.setattr(device_faults, "kill_worker", lambda run_dir, name: seen_killed.append(name))
    process = Process("ar_worker", resolve(), tmp_path, "incarnation", CollectorRegistry(), pages={}, parent=1)
    with pytest.raises(ExitedError) as exited:
        device_faults.leave(process, error)
    assert (exited.value.args, seen_killed, seen_paused) == ((code,), killed, paused)
    with pytest.raises(ExitedError if code == EXIT_CODE else RuntimeError), device_faults.watched(process):
        raise error


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that was started for a run directory."""
    program = [sys.executable, "-c", "import time; time.sleep(60)", "--run-dir", str(tmp_path)]
    with subprocess.Popen(program) as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():  # a program that has just begun has none yet
            time.sleep(0.001)
        yield process
        process.kill()


def test_a_worker_is_killed_by_its_pid_file(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / "vocoder_worker.pid").write_text(f"{sleeper.pid}\n")
    assert kill_worker(tmp_path, "vocoder_worker")
    assert sleeper.wait(10) == -9


def test_a_pid_that_belongs_to_another_by_now_is_left_alone(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "vocoder_worker.pid").write_text(f"{sleeper.pid}\n")
    assert not kill_worker(other, "vocoder_worker")
    assert not kill_worker(other, "ar_worker"), "no pid file: it does not run"
    assert sleeper.poll() is None
