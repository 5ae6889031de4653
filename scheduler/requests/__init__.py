"""Requests: their state, the registry of those under way, the waiting queue, admission and recovery."""
