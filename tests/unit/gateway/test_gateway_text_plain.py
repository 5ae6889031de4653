"""Plain text for every checkpoint: nothing invisible and no markup is spoken, and nothing that is said is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.plain import plain

EXAMPLES = {
    "pre\u00adreq\u200bui\u2060si\ufefftes": "prerequisites",
    "1\u200b000": "1000",
    "Tom &amp; Ann&#8217;s &lt;3": "Tom & Ann\u2019s <3",
    "AT&T; R&D &unknown; &": "AT&T; R&D &unknown; &",
    '<speak>Hello.<break time="500ms"/>Tom.</speak>': "Hello.\nTom.",
    "<b>Bold</b> and <a href='x'>linked</a>": "Bold and linked",
    "<p>One.</p><p>Two.</p>": "\nOne.\n\nTwo.\n",
    "a<b and b > c, x <y> z": "a<b and b > c, x <y> z",
    "<|speaker:1|>Hello [whisper] there": "<|speaker:1|>Hello [whisper] there",
    "Read the [guide](https://example.org/a_b?x=1) first.": "Read the guide first.",
    '![a cat](cat.png "A cat") sits.': "a cat sits.",
    "[excited] (really)": "[excited] (really)",
    "As said.[^1] Then.": "As said. Then.",
    "See <https://example.org/x>.": "See https://example.org/x.",
    "Run:\n```python\nprint(1)\n```\nDone.": "Run:\n\nDone.",
    "Run:\n~~~\nnever closed\n": "Run:\n\n",
    "- [x] one\n- [ ] two": "- one\n- two",
    "| Name | Age |\n|:---|---:|\n| Ann | 30 |\nThat was all.": "Name, Age.\nAnn, 30.\nThat was all.",
    "a | b": "a | b",
    "<!-- a note -->Text": " Text",
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_plain(text: str) -> None:
    assert plain(text) == EXAMPLES[text]


@given(st.text(alphabet="abcdefghij 0123456789.,;!?'\"()\n", max_size=300))
def test_text_without_markup_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@given(st.text(alphabet=st.sampled_from("ab<>&;[]()|`~-\n /p#1"), max_size=200))
def test_it_is_done_in_one_pass_and_never_fails(text: str) -> None:
    assert isinstance(plain(text), str)
