"""Line breaks: whether a sentence goes on behind one, as in text of fixed width."""

from __future__ import annotations

import re

WRAPPED = 45  # characters; a shorter line may be a heading or an item of a list
_GOING_ON = frozenset(
    "a an the and or but nor so to of in on at by for from with without into onto over under between among through "
    "about as than that which who whose whom where when while if because since until unless although though is are was "
    "were be been am has have had do does did will would can could shall should may might must my your his her its our "
    "their this these those not no very more most some any each every both either neither mr mrs ms dr prof".split()
)
_ITEM = re.compile(r"(?:[-*+•‣◦#>|]|\d{1,3}[.)]\s|\(?[a-z]\)\s)")
_LAST_WORD = re.compile(r"([^\W\d_]{1,12})[,;]?$")
_ENDS = re.compile(r"[.!?…:。！？؟।]['\"”’»)\]]{0,3}$")


def goes_on(line: str, following: str) -> bool:
    """Return whether the sentence of ``line`` goes on in the ``following`` line.

    It does if the next line begins in lower case, if the line ends with a comma or a word that can't end a sentence, or
    if it is as long as lines of fixed width are; it doesn't before an item of a list and behind a full stop.
    """
    line, following = line[-200:].rstrip(), following[:80].lstrip()
    if not line or not following or _ENDS.search(line) or _ITEM.match(following) or _ITEM.match(line.lstrip()):
        return False
    if following[0].islower() or following[0] in "$€£¥₹" or line[-1] in ",;–—-":
        return True
    last = _LAST_WORD.search(line)
    return (last is not None and last[1].lower() in _GOING_ON) or len(line) >= WRAPPED
