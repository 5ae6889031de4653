"""The dashboard for Grafana, and how it is made."""
