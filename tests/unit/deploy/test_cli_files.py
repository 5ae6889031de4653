"""Commands that write a file find out before their work that they can't."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.cli import main


@pytest.mark.parametrize("command", [("trace", "--output"), ("bench", "--json"), ("bench", "--plot")])
def test_a_file_that_can_t_be_written_is_an_error_before_the_work(tmp_path: Path, command: tuple[str, str]) -> None:
    file = tmp_path / "missing" / "result"
    done = CliRunner().invoke(main, [*command, str(file), "--server", "http://127.0.0.1:1"])
    assert done.exit_code == 2
    assert f"{file.parent} is no directory in which files can be written" in " ".join(done.output.split())
