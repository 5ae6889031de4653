"""What run_all.sh finds out before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from common.config import resolve
from deploy.group import ports, serve


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("gateway.host, gateway.port", ["--port", "{port}"]),
        ("transport.scheduler", ["--port", "0", "--set", "transport.scheduler=tcp://127.0.0.1:{port}"]),
    ],
)
def test_an_address_that_is_taken_is_an_error_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, options: list[str]
) -> None:
    directories = ["--run-dir", str(tmp_path / "run"), "--data-dir", str(tmp_path / "data")]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert serve.main([*directories, *(option.format(port=port) for option in options)]) == 2
    assert f"{setting}: nobody can listen at 127.0.0.1:{port}" in capsys.readouterr().err


def test_an_address_of_another_machine_is_an_error_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directories = ["--run-dir", str(tmp_path / "run"), "--data-dir", str(tmp_path / "data")]
    assert serve.main([*directories, "--host", "192.0.2.1", "--port", "0"]) == 2
    assert "nobody can listen at 192.0.2.1:0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "environment", "warnings"),
    [
        ([], "", 0),
        (["gateway.host=localhost"], "", 0),
        (["gateway.host=0.0.0.0"], "", 1),
        (["gateway.host=::"], "", 1),
        (["gateway.host=192.168.1.2"], "", 1),
        (["gateway.host=0.0.0.0", "gateway.api_keys_file=keys.toml"], "", 0),
        (["gateway.host=0.0.0.0"], "anna=secret", 0),
        (["gateway.admin_host=0.0.0.0"], "", 1),
        (["gateway.host=0.0.0.0", "gateway.admin_host=0.0.0.0"], "", 2),
    ],
)
def test_what_is_open_to_the_network_without_keys_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, settings: list[str], environment: str, warnings: int
) -> None:
    monkeypatch.setenv("SHOAL_API_KEYS", environment)
    assert len(serve.exposures(resolve(overrides=settings))) == warnings


@pytest.mark.parametrize("in_the_way", ["data", "data/voices"])
def test_a_data_directory_that_cannot_be_written_to_is_an_error_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], in_the_way: str
) -> None:
    path = tmp_path / in_the_way
    path.parent.mkdir(exist_ok=True)
    path.touch()
    directories = ["--run-dir", str(tmp_path / "run"), "--data-dir", str(tmp_path / "data")]
    assert serve.main([*directories, "--port", "0"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path} can't be written to" in line


@pytest.mark.parametrize("setting", ["gateway.host", "gateway.admin_host"])
def test_an_empty_host_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str) -> None:
    assert serve.main(["--run-dir", str(tmp_path), "--port", "0", "--set", f"{setting}="]) == 2
    assert setting in capsys.readouterr().err


def test_all_addresses_are_taken_if_one_of_either_family_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert ports.objection("::", other.getsockname()[1])
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        assert ports.objection("::", other.getsockname()[1])
