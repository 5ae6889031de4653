"""Prometheus' own tool on its configuration and rules, and that the tests of the rules can fail."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.group import ROOT

pytestmark = pytest.mark.slow  # Debian: apt install prometheus

FILES = ROOT / "deploy" / "observe" / "prometheus"


def promtool(*arguments: str, directory: Path = FILES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], cwd=directory, capture_output=True, text=True, timeout=60)


def test_configuration_and_rules_are_valid() -> None:
    for arguments in (["config", "prometheus.yml"], ["rules", "rules/recording.yml", "rules/alerts.yml"]):
        done = promtool("check", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should_and_only_then() -> None:
    done = promtool("test", "rules", "alerts.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("expr: shoal_up == 0", "expr: shoal_up == 2"),
        ("> 0.01", "> 0.001"),
        ("for: 30s", "for: 3m"),
    ],
)
def test_a_broken_rule_is_found(tmp_path: Path, rule: str, broken: str) -> None:
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    texts = {path: path.read_text() for path in (tmp_path / "rules").glob("*.yml")}
    assert any(rule in text for text in texts.values())
    for path, text in texts.items():
        path.write_text(text.replace(rule, broken))
    assert promtool("test", "rules", "alerts.test.yml", directory=tmp_path).returncode != 0
