"""``shoal top``: what it reads out of the metrics of a server."""

from __future__ import annotations

import math

import pytest
from cli_fakes import serving, shoal
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from deploy.cli.metrics_readings import Readings, distribution, rate
from deploy.cli.top import DISTRIBUTIONS


class Metrics:
    """Some metrics of a server, as a server writes them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.up = Gauge("shoal_up", "", ["process"], registry=self.registry)
        self.waiting = Gauge("shoal_num_requests_waiting", "", ["process"], registry=self.registry)
        self.sound = Counter("shoal_audio_seconds", "", registry=self.registry)
        self.first = Histogram(
            "shoal_time_to_first_audio_seconds", "", ["process"], buckets=(0.1, 0.2, 0.4), registry=self.registry
        )

    def read(self, taken: float = 0.0) -> Readings:
        return Readings(self.text(), taken)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


def test_percentiles_are_of_what_came_between_two_readings() -> None:
    metrics = Metrics()
    for _ in range(100):
        metrics.first.labels("a").observe(0.05)
    before = metrics.read()
    for value in [0.15] * 90 + [0.35] * 9 + [9.0]:
        metrics.first.labels("b").observe(value)
    since = distribution(metrics.read(), before, "shoal_time_to_first_audio_seconds")
    assert since.values == 100
    assert 0.1 < since.p50 < 0.2 < since.p95 < 0.4
    assert since.p99 == pytest.approx(0.4)
    ever = distribution(metrics.read(), None, "shoal_time_to_first_audio_seconds")
    assert (ever.values, ever.p50) == (200, pytest.approx(0.1))


def test_nothing_new_has_no_percentiles() -> None:
    now = Metrics().read()
    nothing = distribution(now, now, "shoal_time_to_first_audio_seconds")
    assert nothing.values == 0
    assert math.isnan(nothing.p50)
    assert distribution(now, None, "shoal_no_such_thing").values == 0


def test_a_rate_is_never_negative() -> None:
    metrics = Metrics()
    metrics.sound.inc(10)
    before = metrics.read(0.0)
    metrics.sound.inc(5)
    assert rate(metrics.read(2.0), before, "shoal_audio_seconds_total") == 2.5
    assert rate(Metrics().read(2.0), before, "shoal_audio_seconds_total") == 0


def test_one_look_shows_streams_processes_and_percentiles() -> None:
    metrics = Metrics()
    metrics.up.labels("gateway").set(1)
    metrics.waiting.labels("scheduler").set(12)
    metrics.first.labels("gateway").observe(0.15)
    with serving() as server:
        server.metrics = [metrics.text()]
        result = shoal(server, "top", "--once", "--interval", "0.2")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "gateway" in lines[0]
    assert any(line.split()[:3] == ["streams", "waiting", "12"] for line in lines)
    assert all(any(line.startswith(heading) for line in lines) for heading in DISTRIBUTIONS)


def test_sound_that_flows_between_two_looks_shows_as_a_rate() -> None:
    metrics = Metrics()
    before = metrics.text()
    metrics.sound.inc(50)
    with serving() as server:
        server.metrics = [before, metrics.text()]
        result = shoal(server, "top", "--once", "--interval", "0.5")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("sound, s per second")]
    assert 0 < float(line.split("second")[1].split()[0]) <= 50 / 0.5
