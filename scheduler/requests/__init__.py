"""State of requests and the waiting queue.

A request's place on a worker belongs in ``workers``; its transitions belong in ``lifecycle``.
"""
