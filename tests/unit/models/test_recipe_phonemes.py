"""Phonemes of words: every word of a text has its own, also where espeak-ng writes several words as one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.recipe.phonemes import match

ALONE = {"it": "ɪt", "is": "ɪz", "one": "wˈʌn", "of": "ʌv", "the": "ðə", "in": "ɪn", "oldest": "ˈOldɪst", "a": "ə"}


@pytest.mark.parametrize(
    ("words", "spoken", "expected"),
    [
        ("one of the oldest", "wˈʌn ʌvðɪ ˈOldɪst", "wˈʌn ʌv ðɪ ˈOldɪst"),
        ("in the one", "ɪnðə wˈʌn", "ɪn ðə wˈʌn"),
        ("it is in a one", "ɪt ɪz ɪnə wˈʌn", "ɪt ɪz ɪn ə wˈʌn"),
        ("one of a", "wˈʌnəvə", "wˈʌn əv ə"),
    ],
)
def test_merged_words_are_split(words: str, spoken: str, expected: str) -> None:
    assert match(words.split(), spoken.split(), ALONE.__getitem__) == expected.split()


def test_more_groups_than_words_do_not_match() -> None:
    assert match(["one"], ["wˈʌn", "tˈu"], ALONE.__getitem__) is None


@given(st.lists(st.sampled_from(sorted(ALONE)), min_size=1, max_size=12), st.data())
def test_every_word_has_phonemes_and_none_is_lost(words: list[str], data: st.DataObject) -> None:
    spoken, left = [], [ALONE[word] for word in words]
    while left:
        count = data.draw(st.integers(1, min(3, len(left))))
        spoken.append("".join(left[:count]))
        left = left[count:]
    found = match(words, spoken, ALONE.__getitem__)
    assert found is not None
    assert len(found) == len(words)
    assert all(found)
    assert "".join(found) == "".join(spoken)
