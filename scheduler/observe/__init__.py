"""Observation: metrics, and the journal of recent steps, calls and requests."""
