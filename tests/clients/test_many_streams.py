"""Many listeners at once: what they hear, and what is left of the gateway for others."""

from __future__ import annotations

import statistics

import pytest

from tests.bench.gateway_streams import measure

pytestmark = pytest.mark.slow

SECONDS = 8.0
PCM_BYTES = round(SECONDS * 24000) * 2


def test_two_hundred_listeners_are_served_in_full_and_the_gateway_still_answers() -> None:
    report = measure(streams=200, seconds=SECONDS)
    assert report.whole == 200
    assert report.sizes == {PCM_BYTES}
    assert report.dry <= 20, f"{report}: some may be, where two cores have all else to do"
    assert report.gateway_share < 0.8, report
    assert statistics.median(report.answers) < 0.1, report
    assert report.answer_p99 < 2.0, report
