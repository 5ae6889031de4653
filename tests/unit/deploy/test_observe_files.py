"""Dashboard, rules, runbook and documentation agree with each other and with the code. Needs no tool."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path

import msgspec
import pytest

from common.config import Config, ConfigError, Supervisor
from deploy.group import prometheus
from deploy.group.supervision import processes, programs
from deploy.observe import metrics_docs
from deploy.observe.grafana import layout
from tests.integration.group import ROOT, free_port

RULES = ROOT / "deploy" / "observe" / "prometheus" / "rules"
TESTS = (ROOT / "deploy" / "observe" / "prometheus" / "alerts.test.yml").read_text()
SUFFIX = re.compile(r"_(bucket|sum|count)$")


def alerts() -> list[str]:
    return re.findall(r"alert: (\w+)", (RULES / "alerts.yml").read_text())


def test_the_dashboard_is_up_to_date() -> None:
    assert layout.FILE.read_text() == layout.text(), "run: python -m deploy.observe.grafana"


def test_the_documentation_of_the_metrics_is_up_to_date() -> None:
    assert metrics_docs.FILE.read_text() == metrics_docs.text(), "run: python -m deploy.observe.metrics_docs"


def test_panels_do_not_overlap_and_the_listeners_come_first() -> None:
    cells = set()
    for panel in layout.dashboard()["panels"]:
        place = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & mine
        assert max(x for x, _ in mine) < 24
        cells |= mine
    titles = [panel["title"] for panel in layout.dashboard()["panels"] if panel["type"] != "row"]
    assert titles[:3] == ["Queue wait", "Chunk gap", "Chunk lateness"]
    assert len(titles) == len(set(titles))


def test_every_name_that_is_asked_for_is_declared() -> None:
    families = {family.name for section in metrics_docs.declared().values() for family in section}
    families |= {"shoal_recording", "shoal_processes", "shoal_listeners", "shoal_room"}  # groups of rules
    rules = "\n".join(path.read_text() for path in RULES.glob("*.yml"))
    for text in (rules, TESTS, layout.text()):
        # A colon makes it the name of a recording rule.
        names = set(re.findall(r"(?<![:\w])shoal_\w+\b(?!:)", text)) - {"shoal_"}
        assert {name for name in names if name not in families and SUFFIX.sub("", name) not in families} == set()
    recorded = set(re.findall(r"record: (\S+)", rules))
    assert set(re.findall(r"instance:[\w:]+", rules + TESTS)) == recorded


def test_every_alert_has_its_section_in_the_runbook_and_a_test_in_which_it_fires() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert sections == alerts_in_order(sections)
    text = (RULES / "alerts.yml").read_text()
    for alert in alerts():
        assert f"runbook_url: docs/runbook.md#{alert.lower()}\n" in text
        assert re.search(rf"- alertname: {alert}\n\s+eval_time: \S+\n\s+exp_alerts:\n\s+- exp_labels", TESTS), alert


def alerts_in_order(sections: list[str]) -> list[str]:
    """The alerts, in the order of the sections; those without a section last."""
    return sorted(alerts(), key=lambda alert: sections.index(alert) if alert in sections else len(sections))


def with_prometheus(port: int) -> Config:
    return msgspec.structs.replace(Config(), supervisor=Supervisor(prometheus_port=port))


def test_prometheus_is_supervised_where_it_is_wanted() -> None:
    assert programs(Config()) == processes(Config())
    assert programs(with_prometheus(9090)) == [
        ("prometheus", "deploy.group.prometheus"),
        *processes(Config()),
    ]


def test_a_missing_prometheus_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    prometheus.check(Config())
    with pytest.raises(ConfigError, match="apt install prometheus"):
        prometheus.check(with_prometheus(free_port()))


def test_a_port_that_is_taken_is_an_error_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} .*--observe PORT"):
            prometheus.check(with_prometheus(port))
    prometheus.check(with_prometheus(port))
