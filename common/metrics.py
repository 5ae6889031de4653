"""Metrics: a registry and a loopback port per process, declaration of families, and common buckets.

The port is ephemeral and written to ``<process>.metrics`` in the run directory, where the gateway finds it. Names carry
the prefix ``shoal_`` and base units. Other pages of a process are at the same port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Metric,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from common.files import write_atomically
from common.version import VERSION

Page: TypeAlias = Callable[[Mapping[str, str]], bytes]
"""A page that a process serves, given its parameters; called from a thread. ValueError, KeyError: bad parameters."""

NO_PAGES: Mapping[str, Page] = {}

FAST_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Steps, calls, gaps and lateness."""

WAIT_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0),
)
"""Queue wait, prefill and time to first audio."""

BATCH_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)

HEARTBEAT_AGE = "shoal_heartbeat_age_seconds"
HEARTBEAT_AGE_HELP = "Since a process was last heard of by the one that watches it."
QUEUE_MESSAGES = "shoal_zmq_queue_messages"
QUEUE_MESSAGES_HELP = "Messages that a process has received and not yet handled, or has still to send, by link."

Values = Callable[[], Mapping[str, float]]


class Family(NamedTuple):
    """Declaration of a metric family."""

    name: str  # as exposed, with _total
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


class Families:
    """Declares metric families in a registry and lists them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.declared: list[Family] = []

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        self.declared.append(Family(name, "counter", labels, text))
        return Counter(name, text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self.declared.append(Family(name, "gauge", labels, text))
        return Gauge(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        self.declared.append(Family(name, "histogram", labels, text))
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def computed(self, name: str, text: str, label: str) -> Computed:
        """Declare a gauge whose samples are computed at each scrape."""
        self.declared.append(Family(name, "gauge", (label,), text))
        gauge = Computed(name, text, label)
        self.registry.register(gauge)
        return gauge


class Computed(Collector):
    """See :meth:`Families.computed`. ``values`` returns a number per label value; called from the scraping thread."""

    def __init__(self, name: str, text: str, label: str) -> None:
        self.values: Values = dict
        self._name, self._text, self._label = name, text, label

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(self._name, self._text, labels=[self._label])]

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(self._name, self._text, labels=[self._label])
        for value, number in self.values().items():
            family.add_metric([value], number)
        return [family]


class ProcessMetrics:
    """Metrics that every process has. ``restarts``: how often it was restarted in its run directory."""

    def __init__(self, registry: CollectorRegistry, model: str, restarts: int) -> None:
        self.families = Families(registry)
        build = self.families.gauge("shoal_build_info", "1, with what runs as labels.", "version", "model")
        build.labels(VERSION, model).set(1)
        started = self.families.counter(
            "shoal_process_restarts_total", "Times the process was started again since the group was started."
        )
        started.inc(restarts)


def new_registry() -> CollectorRegistry:
    """A registry with the usual collectors of the process itself."""
    disable_created_metrics()  # an unused series for each counter and histogram
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def serve(registry: CollectorRegistry, run_dir: Path, process: str, pages: Mapping[str, Page] = NO_PAGES) -> None:
    """Serve the registry on a free loopback port, from threads of its own, and write the port to the run directory.

    ``pages``, by path, may come later.
    """
    server, _ = start_http_server(0, addr="127.0.0.1", registry=registry)
    server.set_app(_with_pages(server.get_app(), pages))
    write_atomically(run_dir / f"{process}.metrics", str(server.server_port).encode())


def _with_pages(metrics: Any, pages: Mapping[str, Page]) -> Any:
    """A WSGI application: the pages, and everywhere else the metrics."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        page = pages.get(environ["PATH_INFO"])
        if page is None:
            return metrics(environ, start)
        try:
            body, status = page(dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))), "200 OK"
        except (ValueError, KeyError) as error:
            body, status = repr(error).encode(), "400 Bad Request"
        start(status, [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
        return [body]

    return answer
