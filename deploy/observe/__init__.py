"""Monitoring: the Prometheus beside a group, its rules, the Grafana dashboard and the metrics reference."""
