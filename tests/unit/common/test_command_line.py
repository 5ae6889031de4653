"""Command lines: values reach their names, mistakes end with status 2 and a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import command_line
from deploy.group import serve, worker
from scheduler.simulate import options


def test_a_process_reads_its_run_directory_and_name(tmp_path: Path) -> None:
    command = command_line.process_command("A process.", "gateway")
    assert command_line.parse(command, "x", ["--run-dir", str(tmp_path)]) == {"run_dir": tmp_path, "name": "gateway"}
    assert command_line.parse(command, "x", ["--name", "b", "--run-dir", str(tmp_path)])["name"] == "b"


@pytest.mark.parametrize("arguments", [[], ["--run-dir"], ["--bogus"], ["--run-dir", "a", "extra"]])
def test_mistakes_end_with_status_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command_line.parse(command_line.process_command("A process.", "gateway"), "python -m gateway", arguments)
    assert end.value.code == 2
    assert "Error: " in capsys.readouterr().err


def test_help_ends_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command_line.parse(serve.COMMAND, "shoal serve", ["--help"])
    assert end.value.code == 0
    assert "--data-dir" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "port"),
    [([], 0), (["--observe"], 9090), (["--observe", "9191"], 9191), (["--observe", "--port", "0"], 9090)],
)
def test_observe_takes_a_port_or_none(tmp_path: Path, arguments: list[str], port: int) -> None:
    config = serve.parse([*arguments, "--run-dir", str(tmp_path)])
    assert config.supervisor.prometheus_port == port


def test_a_named_option_takes_precedence_over_a_setting(tmp_path: Path) -> None:
    config = serve.parse(["--port", "7", "--set", "gateway.port=8", "--run-dir", str(tmp_path)])
    assert config.gateway.port == 7


def test_the_options_of_a_worker_may_follow_its_name(tmp_path: Path) -> None:
    settings = ["--set", "transport.scheduler=tcp://127.0.0.1:9999", "--run-dir", str(tmp_path)]
    role, name, config = worker.parse(["ar_worker", "second", *settings], "shoal worker")
    assert (role, name, config.transport.scheduler) == ("ar_worker", "second", "tcp://127.0.0.1:9999")


def test_an_option_of_the_simulator_takes_several_values() -> None:
    parsed = options.parse(["--rate", "10", "20", "--policy", "fcfs", "fixed", "--set", "a=1", "--set", "b=2"])
    assert (parsed.rate, parsed.policy, parsed.set) == ((10.0, 20.0), ("fcfs", "fixed"), ("a=1", "b=2"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rate", "-1"],
        ["--rate", "nan"],
        ["--rate", "1", "--concurrency", "2"],
        ["--rate", "1", "--requests", "5", "--duration", "3"],
        ["--rate", "1", "--slots", "0"],
        [],
    ],
)
def test_the_simulator_refuses_what_it_cannot_simulate(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        options.parse(arguments)
    assert end.value.code == 2
