"""Observation: metrics, and the journal of recent steps, calls and requests.

Both implement :class:`scheduler.observer.Observer`. No decision may depend on anything kept here.
"""
