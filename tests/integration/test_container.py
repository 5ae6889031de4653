"""The container: its files are there, they are enough to run, it needs no root, and it has time to drain."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.config import resolve
from tests.integration.client import gather, speak
from tests.integration.container import (
    FOLDER,
    WORKDIR,
    build,
    copies,
    entry_point,
    first_stage,
    health_check,
    last_stage,
    lay,
    of,
    sent,
)
from tests.integration.container import instructions as all_instructions
from tests.integration.group import ROOT, costs, running


def compose(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text())


def test_every_file_that_is_copied_exists_and_is_sent_to_the_engine() -> None:
    for sources, _ in copies(all_instructions()):
        for source in sources:
            assert (ROOT / source).exists(), source
            assert sent(source), source
    for path in (".git", ".venv", "tests", "docs", "data", "models/recipe", "common/__pycache__"):
        assert not sent(path), path


def test_the_image_runs_as_a_user_with_directories_of_its_own() -> None:
    last = dict(last_stage())
    assert last["USER"] == "10001:10001"
    assert last["WORKDIR"] == WORKDIR
    assert "PYTHONUNBUFFERED=1" in last["ENV"]
    directories = [path for path in entry_point() if path.startswith("/")]
    for path in directories:
        assert path in last["RUN"], "it can write nowhere else"
    assert last["VOLUME"] in directories


def test_the_environment_is_made_from_the_lock_files() -> None:
    (first, *_) = of("RUN")
    assert "ensure_environment requirements.lock" in first
    read_by_it = set(re.findall(r"requirements[-a-z]*\.lock", " ".join(of("COPY"))))
    assert read_by_it == {path.name for path in ROOT.glob("requirements*.lock")}, "the stamp is of all of them"


def test_compose_files_fit_each_other_and_the_image() -> None:
    cpu, gpu = compose("compose.yaml")["services"]["shoal"], compose("compose.gpu.yaml")["services"]["shoal"]
    for service in (cpu, gpu):
        assert service["image"].startswith("shoal:")
        assert set(service["build"]["args"]) <= {argument.split("=")[0] for argument in of("ARG")}
    assert (FOLDER / cpu["build"]["context"]).resolve() == ROOT
    assert ROOT / cpu["build"]["dockerfile"] == FOLDER / "Containerfile"
    writable = {mount.split(":")[0] for mount in cpu["tmpfs"]} | {volume.split(":")[1] for volume in cpu["volumes"]}
    assert {"/tmp", "/data", "/run/shoal"} <= writable
    assert cpu["read_only"]
    assert cpu["init"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert resolve(ROOT / gpu["command"][gpu["command"].index("--config") + 1])


def test_a_container_has_time_to_drain() -> None:
    service = compose("compose.yaml")["services"]["shoal"]
    config = resolve()
    drains = config.gateway.drain_timeout + config.scheduler.drain_timeout
    assert int(service["stop_grace_period"].removesuffix("s")) > drains


def test_the_environment_is_made_before_the_code_is_there(tmp_path: Path) -> None:
    lay(tmp_path, first_stage())
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    script = "set -e; source deploy/environment.sh; ensure_environment requirements.lock; build_native_frame"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.slow
def test_what_is_in_the_image_is_enough_to_run(tmp_path: Path) -> None:
    build(tmp_path)
    script = str(tmp_path / entry_point()[0])
    with running(*costs(), command=[script], cwd=tmp_path) as group:
        (reply,) = gather(speak(group.base, "In a box.", max_new_tokens=10, streaming=False))
        assert reply.status == 200
        check = [part.replace("http://127.0.0.1:8080", group.base) for part in health_check()]
        assert subprocess.run(check, cwd=tmp_path, timeout=30).returncode == 0
        assert group.stop() == 0
        assert subprocess.run(check, cwd=tmp_path, timeout=30, stderr=subprocess.DEVNULL).returncode == 1
