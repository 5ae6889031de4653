"""Simulator: the real scheduler under a virtual clock, with cost models as workers.

``python -m scheduler.simulate --help``; see docs/simulator.md.
"""
