"""Renders panels as Grafana's JSON: position, appearance and data source."""

from __future__ import annotations

import json
from typing import Any

from common.config import ROOT
from deploy.observe.grafana.panels import ROWS, Panel

FILE = ROOT / "deploy" / "observe" / "grafana" / "dashboards" / "shoal.json"
SCHEMA_VERSION = 39  # loads in Grafana 10 and later
WIDTH, HEIGHT, PER_LINE = 8, 8, 3  # in Grafana's grid of 24 columns
SOURCE = {"type": "prometheus", "uid": "${DS}"}


def text() -> str:
    """Build the content of :data:`FILE`."""
    return json.dumps(dashboard(), indent=1) + "\n"


def dashboard() -> dict[str, Any]:
    """Build Grafana's dashboard model."""
    return {
        "uid": "shoal",
        "title": "Shoal",
        "tags": ["shoal"],
        "editable": True,
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "timezone": "browser",
        "time": {"from": "now-30m", "to": "now"},
        "refresh": "10s",
        "graphTooltip": 1,  # one crosshair for all panels
        "templating": {"list": [_source_variable(), _instance_variable()]},
        "panels": _panels(),
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "DS", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1}


def _instance_variable() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Group",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(shoal_up, instance)", "refId": "instance"},
        "refresh": 2,  # when the time range changes
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": PER_LINE * WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": place, "panels": []})
        top += 1
        for number, panel in enumerate(row):
            line, column = divmod(number, PER_LINE)
            place = {"x": column * WIDTH, "y": top + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
        top += -(-len(row) // PER_LINE) * HEIGHT
    return panels


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for number, (legend, expression) in enumerate(panel.queries.items())
    ]
    look = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": look}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    }
