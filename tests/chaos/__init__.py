"""Chaos suite: faults at random moments in a real process group under load, and an oracle for what clients get.

Belongs here: faults, load, oracle. Tests of one particular fault belong in ``tests/integration``.

    python -m tests.chaos --faults 200 --seed 1        # the long form; test_chaos.py is the short one
"""
