"""Registered workers: their resources, the requests they serve, and the steps and calls in flight.

Decisions about what a worker does next belong in ``planning``.
"""
