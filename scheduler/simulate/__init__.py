"""A simulator: the real scheduler under a virtual clock, with a cost model in the place of the workers.

``python -m scheduler.simulate --help``; see docs/simulator.md.
"""
