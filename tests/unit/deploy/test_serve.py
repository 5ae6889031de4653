"""What run_all.sh finds out before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from deploy.group import serve


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
