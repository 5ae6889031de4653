"""The short form of the chaos suite."""

from __future__ import annotations

import sys

import pytest

from tests.chaos.run import chaos

FAULTS = 10


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="faults are injected by Linux' system calls")
def test_every_stream_is_whole_or_ends_with_a_named_error_and_nothing_is_held() -> None:
    report = chaos(FAULTS, seed=3, clients=4)
    assert not report.tally.faulty, str(report)
    assert not report.held, str(report)
    assert report.tally.outcomes["whole"] > FAULTS, str(report)
