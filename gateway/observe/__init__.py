"""Observation: metrics, timelines, traces and OpenTelemetry export."""
