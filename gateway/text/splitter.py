"""Splits a text into parts of bounded length: sentences, and long ones into clauses, words or letters.

``"".join(parts) == text``, always, and the parts are the same however the text arrives.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from gateway.text.sentences import find_end, joined

_CLAUSE = regex.compile(r"[,;:)\]”»](?=\s)|[，、；：—–](?!\d)|\s(?=[-(\[“«—–]\s?)")
_SPACE = regex.compile(r"\s+")
_LETTER = regex.compile(r"\X")
_KEPT_WHOLE = regex.compile(r"<\|speaker:\d+\|>\s*|\[[^\[\]\n]{1,64}\]\s*|\([a-z][a-z \-]{0,30}\)\s*")
NEAR = 400  # characters behind the limit within which it shows whether a sentence is too long
BEHIND = 80  # as many characters are looked at behind a cut: more than a tag is long
SHORTEST = 0.3  # of the limit: a shorter part is not cut off for the sake of a clause


class Splitter:
    """Incremental splitter: takes text in any pieces and returns parts once complete. ``limit``: UTF-8 bytes per part.

    A part is longer than that only if it is one single letter with its marks, or one tag.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._text = ""
        self._looked = 0  # no sentence ends before it

    @property
    def pending(self) -> str:
        """The incomplete sentence so far."""
        return self._text

    def feed(self, text: str) -> list[str]:
        """Add text and return the parts that are complete now."""
        self._text += text
        return list(self._parts(final=False))

    def flush(self) -> list[str]:
        """Return the remaining text as parts."""
        parts = list(self._parts(final=True))
        rest, self._text, self._looked = self._text, "", 0
        return [*parts, rest] if rest else parts

    def _parts(self, final: bool) -> Iterator[str]:
        while (cut := self._cut(final)) is not None:
            yield self._text[:cut]
            self._text, self._looked = self._text[cut:], 0

    def _cut(self, final: bool) -> int | None:
        near = self._text[: self._limit + NEAR]
        final_here = final and len(near) == len(self._text)
        end, sure = find_end(near, self._looked, final_here)
        if end is None and len(near) < len(self._text) and size(near[:sure]) <= self._limit:
            end, sure = find_end(self._text, self._looked, final)
        head = self._text[: sure if end is None else end]
        if size(head) > self._limit:
            return _cut_long(head, self._limit, complete=end is not None or final_here) or end
        self._looked = sure
        return end


def split(text: str, limit: int) -> list[str]:
    """Split a complete text into parts."""
    splitter = Splitter(limit)
    return [*splitter.feed(text), *splitter.flush()]


def size(text: str) -> int:
    """UTF-8 bytes."""
    return len(text.encode("utf-8", "surrogatepass"))


def _cut_long(text: str, limit: int, complete: bool) -> int | None:
    """Find the cut of a sentence longer than ``limit``, within it if possible; None: too early to tell, or nowhere.

    ``complete``: the sentence ends where ``text`` does.
    """
    most = len(text.encode("utf-8", "surrogatepass")[:limit].decode("utf-8", "ignore"))
    if not complete and len(text) < most + BEHIND:
        return None
    kept = [(found.start(), found.end()) for found in _KEPT_WHOLE.finditer(text, 0, most + BEHIND)]

    def allowed(place: int) -> bool:
        return not (joined(text, place) or any(begin < place <= end for begin, end in kept))

    clauses = (
        found.end() if not found[0].isspace() else found.start() for found in _CLAUSE.finditer(text, 0, most + 1)
    )
    least = int(SHORTEST * most)
    words = (found.start() for found in _SPACE.finditer(text, 0, most + 1))
    for places in (clauses, words):
        good = [place for place in places if least < place <= most and allowed(place) and text[:place].strip()]
        if good:
            return good[-1]
    return _cut_anywhere(text, most, kept, complete)


def _cut_anywhere(text: str, most: int, kept: list[tuple[int, int]], complete: bool) -> int | None:
    """Find a cut between two letters: the last one within the limit, or else the first."""
    best: int | None = None
    for found in _LETTER.finditer(text):
        place = found.end()
        if place == len(text):
            break
        if any(begin < place < end for begin, end in kept):
            continue
        if place > most:
            return best or place
        best = place
    return best if best is not None or not complete else None
