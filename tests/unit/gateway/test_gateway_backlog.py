"""The order in which sound is handed to its streams."""

from __future__ import annotations

import numpy as np
import pytest

from common.messages import FrameSpan
from gateway.backlog import Backlog


def test_first_sound_goes_before_more_and_each_keeps_its_order() -> None:
    backlog, samples = Backlog(), np.zeros(1, np.float32)
    spans = [
        FrameSpan("a", 4, 2),
        FrameSpan("b", 0, 2),
        FrameSpan("a", 6, 2),
        FrameSpan("c", 0, 1),
        FrameSpan("b", 2, 2),
    ]
    for span in spans:
        backlog.add(span, samples)
    assert len(backlog) == 5
    assert [backlog.next()[0] for _ in spans] == [spans[1], spans[3], spans[0], spans[2], spans[4]]
    assert not backlog
    with pytest.raises(IndexError):
        backlog.next()
