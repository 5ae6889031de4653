"""Sentence boundaries, found from left to right.

A decision looks no further ahead than it must, and never at where the text was cut on its way here: sentences come out
the same whether a text arrives letter by letter or at once. What follows a sentence, white space included, belongs to
the next one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import regex

from gateway.checkpoint.prompt import SPEAKER
from gateway.text.lines import goes_on

_SPEAKER = regex.compile(SPEAKER.pattern)  # this library tells a beginning that may become a match

LOOK_BEHIND, LOOK_AHEAD = 200, 4  # characters of the lines around a break

_CLOSERS = "\"'”’»›)\\]}*_」』）】》〉"
_CANDIDATE = regex.compile(
    rf"(?P<full>[。！？｡؟۔।॥։።፧។៕။]+[{_CLOSERS}]*)|(?P<stop>[.!?…‽]+[{_CLOSERS}]*)|(?P<line>[\r\n]\s*)|(?P<tag><)"
)
_LINE = regex.compile(r"\r\n|\r|\n")
_JOINED = regex.compile(r"(?<=\p{GCB=Prepend})|(?=[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}])")
_NEXT = regex.compile(r"\s*(\S)")
_NEXT_WORD = regex.compile(r"\s*([^\W\d_]{1,12})(?=\W)")
_LAST_WORD = regex.compile(r"(?<![^\s(\[{\"'“‘«])[^\s(\[{\"'“‘«]*$")

_TITLES = frozenset(
    "mr mrs ms dr prof st mt ft rev gen sen rep gov capt lt col sgt cmdr adm hon pres fr messrs mme mlle "
    "vs e.g i.e cf viz al approx fig eq ca".split()
)
_EITHER_WAY = frozenset(  # may end a sentence: then no small letter and no digit follows
    "etc inc ltd co corp jr sr dept est ave blvd rd vol sec a.m p.m no nos "
    "jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_OPENINGS = frozenset(  # a word that begins a sentence after an abbreviation such as U.S.
    "The A An It He She They We You I This That These Those There In On At But And So If When While After Before "
    "However What Why How Who Where As For".split()
)
_DOTTED = regex.compile(r"(?:[^\W\d_]\.)+[^\W\d_]{1,2}")


class Verdict(NamedTuple):
    """A boundary. ``end``: end of the sentence; ``wait``: position from which more text is needed to decide."""

    end: int | None
    wait: int


def find_end(text: str, start: int, final: bool) -> Verdict:
    """Find the end of the first sentence of ``text`` from ``start`` on. ``final``: nothing follows the text."""
    for found in _CANDIDATE.finditer(text, start):
        cut = found.start() if found.lastgroup in ("line", "tag") else found.end()
        ends = _ends(text, found, final)
        if ends is None:
            return Verdict(None, found.start())
        if ends and text[:cut].strip() and not joined(text, cut):
            return Verdict(cut, cut)
    return Verdict(None, len(text))


def joined(text: str, place: int) -> bool:
    """Return whether the characters around a position form one letter, such as one with an accent."""
    return _JOINED.match(text, place) is not None


def _ends(text: str, found: regex.Match[str], final: bool) -> bool | None:
    """Decide whether a sentence ends at this candidate; None: too early to tell."""
    if found.lastgroup == "tag":
        tag = _SPEAKER.match(text, found.start(), partial=not final)
        return None if tag is not None and tag.partial else tag is not None
    if found.lastgroup == "line":
        return _ends_at_line(text, found, final)
    if found.end() == len(text):
        return False if final else None
    if found.lastgroup == "full":
        return True
    if not text[found.end()].isspace():
        return False
    return _ends_at_stop(text, found, final)


def _ends_at_line(text: str, found: regex.Match[str], final: bool) -> bool | None:
    """Decide at a line break: an empty line ends a sentence, and so does a new line with a sentence of its own."""
    if len(_LINE.findall(found[0])) > 1:
        return True
    after = text[found.end() : found.end() + LOOK_AHEAD]
    if len(after) < LOOK_AHEAD and not final:
        return None
    if not after:
        return False
    line = text[max(0, found.start() - LOOK_BEHIND) : found.start()]
    return not goes_on(re.split(r"[\r\n]", line)[-1], re.split(r"[\r\n]", after)[0])


def _ends_at_stop(text: str, found: regex.Match[str], final: bool) -> bool | None:
    """Decide at a stop followed by white space."""
    mark = found[0]
    if mark != ".":
        return True if mark[-1] in "!?‽" else _next_is(text, found, final, digits=True)
    word = _LAST_WORD.search(text, 0, found.start())
    name = word[0] if word is not None else ""
    plain = name.lower()
    if plain in _TITLES or (len(name) == 1 and name.isupper() and name != "I"):
        return False
    if plain in _EITHER_WAY:
        return _next_is(text, found, final, digits=False)
    if _DOTTED.fullmatch(name):
        return _opening_follows(text, found, final)
    if name.isdigit() and len(name) < 4 and word is not None:
        before = text[: word.start()]
        return bool(before.strip()) and "\n" not in before[len(before.rstrip()) :]  # else the number of a list's item
    return True


def _next_is(text: str, found: regex.Match[str], final: bool, digits: bool) -> bool | None:
    """Return whether the text may begin a sentence: no lower-case letter, and no digit unless ``digits``."""
    follows = _NEXT.match(text, found.end())
    if follows is None:
        return False if final else None
    return not follows[1].islower() and (digits or not follows[1].isdigit())


def _opening_follows(text: str, found: regex.Match[str], final: bool) -> bool | None:
    word = _NEXT_WORD.match(text, found.end(), partial=not final)
    if word is not None and word.partial:
        return None
    return word is not None and word[1] in _OPENINGS
