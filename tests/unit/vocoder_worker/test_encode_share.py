"""The encoding of a clip has its share of the vocoder's time, however many calls wait."""

from __future__ import annotations

import pytest

from vocoder_worker.encode_share import SHARE, EncodeShare


@pytest.mark.parametrize("span", [0.001, 0.003, 0.05, 0.2])
@pytest.mark.parametrize("call", [0.002, 0.02, 0.1])
def test_under_endless_calls_a_clip_gets_its_share_of_the_time_and_no_more(span: float, call: float) -> None:
    share, decoding, encoding = EncodeShare(), 0.0, 0.0
    share.decoded(100.0)
    share.start()
    assert not share.due, "what was earned before the clip came does not count"
    while decoding < 100.0:
        share.decoded(call)
        decoding += call
        while share.due:
            share.encoded(span)
            encoding += span
    assert encoding / (encoding + decoding) == pytest.approx(SHARE, abs=0.02)
