"""A group with its Prometheus, under load: every panel, rule and family has data, and all of it ends with the group."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any
from unittest import mock

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from common import gpu
from deploy.group.prometheus import FILES
from deploy.observe import metrics_docs
from deploy.observe.grafana.layout import FILE as DASHBOARD
from deploy.observe.grafana.panels import GPU_ROW
from tests.bench import metrics_cost
from tests.integration.client import gather, speak
from tests.integration.group import ROOT, Group, costs, eventually, free_port, running

pytestmark = pytest.mark.slow  # Debian: apt install prometheus

SCRAPE_SECONDS = 5.0
INTERVAL = "20s"  # what Grafana puts for $__rate_interval: four scrapes
LOAD = ["--concurrency", "8", "--seconds", "11", "--field", "max_new_tokens=100"]
LEFT_BY_PROMETHEUS = ("process_", "python_")


class Observed(Group):
    """A group, and the Prometheus beside it. Questions are about ``moment``, in seconds since 1970; None: now."""

    def __init__(self, group: Group, port: int) -> None:
        self.__dict__.update(group.__dict__)
        self.prometheus = f"http://127.0.0.1:{port}"
        self.moment: float | None = None

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[float]:
        """The values of an instant query that are numbers."""
        when = {} if self.moment is None else {"time": str(self.moment)}
        values = [float(sample["value"][1]) for sample in self.ask("query", query=expression, **when)["result"]]
        return [value for value in values if math.isfinite(value)]


@pytest.fixture(scope="module")
def observed() -> Iterator[Observed]:
    """Under load until a moment ago: streams of ``shoal bench``, a cancel, and a client that reads slowly."""
    port = free_port()
    with running(*costs(scheduler__unread_seconds=0.5), "--observe", str(port)) as group:
        observed = Observed(group, port)
        eventually(lambda: observed.query("shoal_up"), 3 * SCRAPE_SECONDS)
        bench = subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "bench", "--server", group.base, *LOAD],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        gather(speak(group.base, "I shall hang up.", stop_after=1000, max_new_tokens=2000))
        read_a_little(group.address)
        assert bench.wait(120) == 0
        eventually(group.idle)
        ended = time.time()
        eventually(lambda: max(observed.query('timestamp(shoal_up{process="gateway"})')) > ended, 3 * SCRAPE_SECONDS)
        observed.moment = time.time()
        yield observed


@pytest.fixture
def now(observed: Observed) -> Iterator[Observed]:
    """The same, asked about the present."""
    with mock.patch.object(observed, "moment", None):
        yield observed


def read_a_little(address: str) -> None:
    """Ask for much more sound than the buffers on the way hold, read some of it, and go."""
    host, port = address.split(":")
    body = json.dumps({"text": "Slowly.", "format": "pcm", "max_new_tokens": 600}).encode()
    head = f"POST /v1/tts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        reader.connect((host, int(port)))
        reader.sendall(head.encode() + body)
        for _ in range(64):
            reader.recv(16 * 1024)


def panels() -> list[tuple[str, str, str]]:
    """Row, title and expression of every query of the dashboard, with what Grafana puts in."""
    found, row = [], ""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        row = panel["title"] if panel["type"] == "row" else row
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", INTERVAL).replace("$instance", ".*")
            found.append((row, panel["title"], expression))
    return found


@pytest.mark.parametrize(("title", "expression"), [(title, query) for row, title, query in panels() if row != GPU_ROW])
def test_every_panel_has_data(observed: Observed, title: str, expression: str) -> None:
    """All but those of the row about GPUs, of which cost models have none."""
    assert observed.query(expression)


def test_panels_about_gpus_are_asked_and_have_nothing_where_there_is_none(observed: Observed) -> None:
    queries = [query for row, _, query in panels() if row == GPU_ROW]
    assert len(queries) == len(gpu.FAMILIES)
    assert [observed.query(query) for query in queries] == [[]] * len(queries)


def test_every_rule_is_evaluated_and_nothing_is_alarming(observed: Observed) -> None:
    rules = [rule for group in observed.ask("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []
    records = [rule["name"] for rule in rules if rule["type"] == "recording"]
    assert len(records) > 10
    assert [name for name in records if not observed.query(name)] == []


def test_the_numbers_are_those_of_the_load(observed: Observed) -> None:
    def total(expression: str) -> float:
        return sum(observed.query(expression))

    assert total('shoal_requests_total{outcome="length"}') > 8
    assert total('shoal_cancels_total{cause="disconnect"}') == 2
    assert total("shoal_credit_stalls_total") > 0
    assert total("shoal_up") == 4
    assert total("shoal_ready") == 1
    seconds = total("shoal_audio_seconds_total")
    frames = total("shoal_vocoder_frames_total") * 0.05
    assert 0.8 * frames < seconds <= frames


def test_the_exposition_keeps_the_conventions(observed: Observed) -> None:
    with urllib.request.urlopen(f"{observed.base}/metrics", timeout=10) as reply:
        text = reply.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_what_is_exposed_is_what_is_documented(observed: Observed) -> None:
    """Families and their labels, but for those of GPUs; ``process`` and ``le`` come from merging and histograms."""
    sections = metrics_docs.declared()
    del sections["Workers on a GPU"]
    documented = {family.name.removesuffix("_total"): family for families in sections.values() for family in families}
    with urllib.request.urlopen(f"{observed.base}/metrics", timeout=10) as reply:
        exposed = {family.name: family for family in text_string_to_metric_families(reply.read().decode())}
    ours = {name for name in exposed if not name.startswith(LEFT_BY_PROMETHEUS)}
    assert ours == set(documented)
    for name in ours:
        assert exposed[name].type == documented[name].kind
        labels = {label for sample in exposed[name].samples for label in sample.labels}
        assert labels <= {*documented[name].labels, "process", "le"}


def test_a_process_that_was_killed_is_seen_to_have_been_started_again(observed: Observed) -> None:
    observed.kill("vocoder_worker")
    eventually(lambda: observed.metric("shoal_process_restarts_total", process="vocoder_worker") == 1, 30.0)
    eventually(observed.ready, 30.0)
    others = sum(observed.metric("shoal_process_restarts_total", process=name) for name in ("gateway", "scheduler"))
    assert others == 0
    eventually(lambda: observed.metric("shoal_heartbeat_age_seconds", process="vocoder_worker") < 2)


def test_prometheus_finds_a_gateway_that_comes_back_at_another_port(now: Observed) -> None:
    def address() -> str:
        return (now.run_dir / "gateway.admin_address").read_text()

    before = address()
    now.kill("gateway")
    eventually(lambda: address() != before, 30.0)
    eventually(lambda: now.query(f'up{{job="shoal", instance="{address()}"}}') == [1], 6 * SCRAPE_SECONDS)


@pytest.mark.parametrize("how", ["at once", "without its supervisor"])
def test_prometheus_ends_with_its_group(how: str) -> None:
    with running(*costs(), "--observe", str(free_port())) as group:
        prometheus = psutil.Process(group.pid("prometheus"))
        assert prometheus.name() == "prometheus"
        if how == "without its supervisor":
            os.kill(int((group.run_dir / "supervisord.pid").read_text()), signal.SIGKILL)
        else:
            group.process.send_signal(signal.SIGTERM)
            group.process.send_signal(signal.SIGTERM)
        prometheus.wait(10)
        group.process.wait(30)


def test_data_lies_in_the_run_directory(observed: Observed) -> None:
    assert (observed.run_dir / "prometheus" / "wal").is_dir()
    assert (observed.run_dir / "prometheus.yml").resolve() == FILES / "prometheus.yml"


def test_metrics_cost_less_than_a_fiftieth_of_a_core_at_64_streams() -> None:
    costs_of_64 = metrics_cost.measure(64)
    assert sum(cost.share for cost in costs_of_64) < metrics_cost.LIMIT, costs_of_64
    assert min(cost.per_second for cost in costs_of_64 if cost.name != "credit stall") > 0
