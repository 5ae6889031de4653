"""Transitions of requests: arrival, admission, results of steps and calls, loss of a worker, end.

Decisions about order and amounts belong in ``planning``.
"""
