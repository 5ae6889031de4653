"""``python -m deploy.observe.grafana``: regenerates the dashboard."""

from __future__ import annotations

from deploy.observe.grafana.layout import FILE, text

if __name__ == "__main__":
    FILE.write_text(text())
