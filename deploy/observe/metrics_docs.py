"""``python -m deploy.observe.metrics_docs``: writes ``docs/metrics.md`` from the declared metric families."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from ar_worker.cost_executor import CostExecutor as ArExecutor
from ar_worker.metrics import ArMetrics
from common import gpu
from common.checkpoint import load_codec_config
from common.config import ROOT, Config
from common.metrics import Families, Family, ProcessMetrics
from gateway.engine.metrics import EngineMetrics
from gateway.observe.merge import up_family
from gateway.observe.metrics import GatewayMetrics
from scheduler.observe.metrics import SchedulerMetrics
from vocoder_worker.cost_executor import CostExecutor as VocoderExecutor
from vocoder_worker.metrics import VocoderMetrics

FILE = ROOT / "docs" / "metrics.md"
UNITS = {"seconds": "s", "bytes": "bytes", "ratio": "ratio"}

INTRODUCTION = """# Metrics

<!-- Written by python -m deploy.observe.metrics_docs -->

`/metrics` of the gateway has the metrics of all processes, in Prometheus' text format, each sample with the label
`process`. Each process also serves its own on a loopback port, which it writes to `<process>.metrics` in the run
directory. `deploy/observe/prometheus/` has a scrape configuration, recording rules and alerts,
`deploy/observe/grafana/` a dashboard; [runbook.md](runbook.md) tells what to do about each alert.

```bash
deploy/run_all.sh --observe        # starts a Prometheus beside the group, at 127.0.0.1:9090; --observe PORT: elsewhere
```

On Debian, `apt install prometheus` starts one as a service, which takes that port; `systemctl disable --now prometheus`
ends it.

To have your own Prometheus scrape several groups, copy `deploy/observe/prometheus/` and list their operators' addresses
(`gateway.admin_host`, `gateway.admin_port`) in `targets.json`. For Grafana,
copy `deploy/observe/grafana/provisioning/` to `/etc/grafana/provisioning/` and
`deploy/observe/grafana/dashboards/` to `/var/lib/grafana/dashboards/`.

Names carry the prefix `shoal_` and base units. Labels take few values: never a request, a voice or a text. A histogram
also has `_bucket`, `_sum` and `_count`. Besides the families below, every process has the usual `process_*` and
`python_*`.
"""

SECTIONS = {
    "Gateway": "What clients ask for and get, as the process sees it that talks to them.",
    "Scheduler": "Requests of the engine, of which a long text or a conversation takes several, and the workers' work.",
    "AR worker": "",
    "Vocoder worker": "",
    "Every process": "",
    "Workers on a GPU": "",
}


def declared() -> dict[str, list[Family]]:
    """Return the metric families by section."""
    config, registry = Config(), CollectorRegistry
    gateway = GatewayMetrics(registry()).families
    gateway.declared += EngineMetrics(registry()).families.declared
    up_family(gateway)
    vocoder = config.vocoder_worker
    codec = VocoderExecutor(load_codec_config(config.model_dir), vocoder.slots, vocoder.cost)
    ar = ArExecutor(config.ar_worker.slots, config.ar_worker.cost)
    families: list[Families] = [
        gateway,
        SchedulerMetrics(registry()).families,
        ArMetrics(registry(), ar).families,
        VocoderMetrics(registry(), codec).families,
        ProcessMetrics(registry(), "", 0).families,
    ]
    return dict(zip(SECTIONS, [*(family.declared for family in families), gpu.FAMILIES], strict=True))


def text() -> str:
    """Build the content of :data:`FILE`."""
    parts = [INTRODUCTION]
    for section, families in declared().items():
        parts.append("\n".join([f"## {section}", "", *_head(section), *_table(families), ""]))
    return "\n".join(parts)


def _head(section: str) -> list[str]:
    return [SECTIONS[section], ""] if SECTIONS[section] else []


def _table(families: Iterable[Family]) -> list[str]:
    rows = [
        f"| `{family.name}` | {family.kind} | {_unit(family)} | {_labels(family)} | {family.help} |"
        for family in sorted(families)
    ]
    return ["| name | type | unit | labels | what it is |", "|---|---|---|---|---|", *rows]


def _unit(family: Family) -> str:
    return UNITS.get(family.name.removesuffix("_total").rsplit("_", 1)[-1], "")


def _labels(family: Family) -> str:
    return ", ".join(f"`{label}`" for label in family.labels)


if __name__ == "__main__":
    FILE.write_text(text())
