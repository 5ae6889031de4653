"""Grafana dashboard and its generator."""
