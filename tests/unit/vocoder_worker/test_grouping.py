"""Laws of cutting a call into batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vocoder_worker.grouping import batches

CALLS = st.lists(st.integers(1, 300), max_size=40)
LIMITS = st.integers(1, 128)


@given(CALLS, LIMITS)
def test_each_frame_is_computed_once_and_in_order(frames, limit):
    done = [0] * len(frames)
    for batch in batches(frames, limit):
        for piece in batch:
            assert piece.first == done[piece.item]
            done[piece.item] += piece.frames
    assert done == frames


@given(CALLS, LIMITS)
def test_no_batch_passes_the_limit_and_at_most_half_of_it_is_padding(frames, limit):
    for batch in batches(frames, limit):
        longest = max(piece.frames for piece in batch)
        assert len(batch) * longest <= limit
        assert all(2 * piece.frames >= longest for piece in batch)


@given(CALLS, LIMITS)
def test_an_item_has_at_most_one_piece_in_a_batch(frames, limit):
    for batch in batches(frames, limit):
        assert len({piece.item for piece in batch}) == len(batch)


def test_equal_lengths_share_a_batch():
    assert len(batches([4] * 16, 64)) == 1
