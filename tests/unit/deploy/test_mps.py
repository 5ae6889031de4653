"""GPU sharing: when a group wants MPS, that the daemon is there once, and that each worker knows whether it uses it."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from pathlib import Path

import pytest
from mps_fakes import Machine

from common import mps
from common.config import Config, ConfigError, resolve
from deploy.group import mps as control
from deploy.group.mps import MpsError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def configured(*settings: str) -> Config:
    return resolve(None, list(settings))


@pytest.mark.parametrize(
    ("settings", "gpus", "reason"),
    [
        ([], 1, None),
        (["ar_worker.device=cuda", "vocoder_worker.device=cuda:0"], 2, None),
        (["supervisor.mps=on"], 1, None),
        ([], 0, "no NVIDIA GPU"),
        (["supervisor.mps=off"], 1, "supervisor.mps is off"),
        (["vocoder_worker.device=cpu"], 1, "vocoder_worker.device is cpu"),
        (["ar_worker.executor=cost"], 1, "ar_worker.executor is cost"),
    ],
)
def test_a_group_wants_mps_where_both_workers_use_an_nvidia_gpu(
    settings: list[str], gpus: int, reason: str | None
) -> None:
    objection = control.objection(configured(*settings), gpus)
    assert objection is None if reason is None else reason in (objection or "")


def test_starting_twice_starts_one_daemon_and_stopping_twice_is_no_error(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [control.main([action]) for action in ("start", "start", "stop", "stop")] == [0, 0, 0, 0]
    assert capsys.readouterr().out.splitlines() == ["started", "runs already", "stopped", "does not run"]
    pipes = Path(os.environ[mps.PIPE_DIRECTORY])
    assert stat.S_IMODE(pipes.stat().st_mode) == 0o700, "no other user may use the GPU through it"


def test_without_a_driver_the_error_says_so(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.write("gpus", "")
    assert control.main(["start"]) == 1
    assert "no NVIDIA GPU or driver" in capsys.readouterr().err
    machine.write("gpus", "GPU 0: NVIDIA H200 (UUID: GPU-0)\n")
    machine.remove(mps.CONTROL)
    assert control.main(["start"]) == 1
    assert f"{mps.CONTROL} is not on PATH" in capsys.readouterr().err


def test_a_daemon_that_does_not_start_is_an_error_with_its_own_words(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.write("broken", "")
    assert control.main(["start"]) == 1
    error = capsys.readouterr().err
    assert "no permission" in error
    assert os.environ[mps.LOG_DIRECTORY] in error


def test_status_lists_servers_and_clients(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert control.main(["status"]) == control.NOT_RUNNING
    assert "no MPS control daemon answers" in capsys.readouterr().out
    control.start()
    assert control.main(["status"]) == 0
    assert "no server yet" in capsys.readouterr().out
    machine.server(4711, "ACTIVE", 12, 13)
    assert control.main(["status"]) == 0
    assert "server 4711: ACTIVE, clients: 12 13" in capsys.readouterr().out


def test_a_group_brings_mps_and_takes_it_away_again(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    with control.shared(configured()):
        assert machine.running
    assert not machine.running
    assert "share the GPU through MPS" in capsys.readouterr().err


def test_a_group_leaves_a_daemon_that_is_not_its_own_or_still_used(machine: Machine) -> None:
    control.start()
    with control.shared(configured()):
        pass
    assert machine.running
    control.stop()
    with control.shared(configured()):
        machine.server(4711, "ACTIVE", 12)
    assert machine.running


def test_a_group_without_mps_says_why_and_runs(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.write("broken", "")
    with control.shared(configured()):
        assert "without MPS: the daemon did not start" in capsys.readouterr().err
    with control.shared(configured("supervisor.mps=off")):
        assert not machine.running
        assert "without MPS: supervisor.mps is off" in capsys.readouterr().err


def test_a_group_that_must_have_mps_does_not_run_without(machine: Machine) -> None:
    machine.write("gpus", "")
    with pytest.raises(MpsError, match="is on, but there is no NVIDIA GPU"):
        control.shared(configured("supervisor.mps=on")).__enter__()


def test_where_there_is_no_gpu_nothing_is_said(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.write("gpus", "")
    with control.shared(configured()):
        assert not machine.running
    assert capsys.readouterr().err == ""


def test_a_worker_on_a_gpu_says_whether_it_runs_under_mps(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    mps.report("cpu")
    assert not caplog.messages
    mps.report("cuda:0")
    assert "runs without MPS" in caplog.messages[-1]
    control.start()
    machine.server(4711, "ACTIVE", os.getpid() + 1)
    mps.report("cuda:0")
    assert "runs without MPS" in caplog.messages[-1], "others are clients, this process is not"
    machine.server(4711, "ACTIVE", os.getpid() + 1, os.getpid())
    mps.report("cuda:0")
    assert caplog.messages[-1] == "runs under MPS"


def test_a_worker_waits_for_a_server_that_recovers_from_a_fault(machine: Machine) -> None:
    control.start()
    machine.server(4711, "FAULT", 12)
    threading.Timer(0.6, lambda: machine.server(4711, "ACTIVE")).start()
    began = time.monotonic()
    mps.prepare(None, seconds=30.0)
    assert 0.5 < time.monotonic() - began < 10.0


def test_the_wait_for_a_server_is_bounded(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    control.start()
    machine.server(4711, "INITIALIZING")
    mps.prepare(None, seconds=0.3)
    assert "still take no client" in caplog.messages[-1]


def test_there_is_no_cap_on_a_workers_share_unless_configured(machine: Machine) -> None:
    mps.prepare(configured().vocoder_worker.active_thread_percentage, seconds=0.0)
    assert mps.ACTIVE_THREAD_PERCENTAGE not in os.environ
    capped = configured("vocoder_worker.active_thread_percentage=40").vocoder_worker
    mps.prepare(capped.active_thread_percentage, seconds=0.0)
    assert os.environ[mps.ACTIVE_THREAD_PERCENTAGE] == "40"
    with pytest.raises(ConfigError):
        configured("ar_worker.active_thread_percentage=0")
