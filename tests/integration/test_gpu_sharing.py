"""run_all.sh on a machine that has an NVIDIA GPU and MPS, as far as its command-line tools tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import mps
from tests.integration.group import ROOT, running
from tests.unit.deploy.mps_fakes import Machine

pytestmark = pytest.mark.slow


def test_a_group_runs_with_mps_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    with running("--model", str(ROOT / "tests" / "data" / "checkpoint_tiny")) as group:
        assert machine.running
        for worker in ("ar_worker", "vocoder_worker"):
            environment = Path(f"/proc/{group.pid(worker)}/environ").read_bytes().split(b"\0")
            assert f"{mps.PIPE_DIRECTORY}={tmp_path / 'pipes' / 'of-shoal'}".encode() in environment
        assert group.stop() == 0
    assert not machine.running, "what the group started ends with it"
