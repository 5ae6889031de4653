"""``python -m deploy.grafana``: write the dashboard anew."""

from __future__ import annotations

from deploy.grafana.layout import FILE, text

if __name__ == "__main__":
    FILE.write_text(text())
