"""Roman numerals, initialisms and words in capitals as English words."""

from __future__ import annotations

import re

from gateway.text.english_rules import Rule, rule
from gateway.text.english_words import SPELLED
from gateway.text.numbers import cardinal, ordinal, year

_NUMBERED = (
    "Chapter|Part|[Ss]cene|[Ss]ection|Section|Act|Scene|Book|Volume|Vol\\.?|Appendix|Phase|War|Type|Class|Level|Stage|Grade|Article|Title|"
    "Psalm|Bowl|Canto|Figure|Fig\\.|Table|Unit|Episode|Season|Round|Lesson|Step|Version|Mark|Exhibit|Schedule|Division"
)
_REGNAL = (
    "Henry|Elizabeth|Charles|Louis|George|Edward|William|James|Richard|Philip|Napoleon|Peter|Catherine|Nicholas|"
    "Alexander|Pius|Paul|Benedict|Francis|Frederick|Otto|Leo|Gregory|Ramses|Rameses|Mary|Anne|Victoria|Albert|Leopold|"
    "Gustav|Christian|Ivan|Joseph|Ferdinand|Innocent|Clement|Urban|Boniface|Ptolemy|Darius|Xerxes|Tutankhamun|Juan|"
    "Carlos|Felipe|Umberto|Haakon|Harald|Olaf|Mehmed|Murad|Selim|Abdul|Malcolm|Robert|David|Margrethe|Wilhelm|Friedrich"
)
_NOT_NAMES = frozenset(
    "The A An My Your His Her Its Our Their This That An And Or But In On At By To For With Is".split()
)
_ROMAN = r"(?:X{1,4}(?:IX|IV|V?I{0,3})|X?(?:IX|IV|V?I{2,3}|VI?)|XL(?:IX|IV|V?I{0,3})|LX{0,3}(?:IX|IV|V?I{0,3}))"
_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_INTERJECTION = re.compile(r"(.)\1\1|^(?:SH+|H+M+|M+H+M+|B+R+|P+S+T+|T+S+K+|G+R+|P+F+T*|Z+|M{2,}|NTH|VS)$")


def roman(numeral: str) -> int:
    """Value of a Roman numeral: a smaller digit before a greater one is subtracted."""
    values = [_VALUES[digit] for digit in numeral.upper()]
    following = [*values[1:], 0]
    return sum(-value if value < after else value for value, after in zip(values, following, strict=True))


def _numbered(found: re.Match[str]) -> str:
    return f"{found[1]} {cardinal(str(roman(found[2])))}"


def _regnal(found: re.Match[str]) -> str:
    return f"{found[1]} the {ordinal(str(roman(found[2])))}"


def _named(found: re.Match[str]) -> str:
    if found[1] in _NOT_NAMES:
        return found[0]
    return f"{found[1]} {cardinal(str(roman(found[2])))}"


def _spelled(word: str) -> bool:
    """Whether a word in capitals is read letter by letter."""
    if _INTERJECTION.search(word):
        return False
    return word in SPELLED or not set(word) & set("AEIOUY")


def _plural(found: re.Match[str]) -> str:
    return f"{' '.join(found[1])}s" if _spelled(found[1]) else found[0]


def _capitals(found: re.Match[str]) -> str:
    return " ".join(found[0]) if _spelled(found[0]) else found[0]


def quietened(text: str) -> str:
    """Put sentences that are all in capitals into lower case, so that their words are no initialisms."""
    return _SHOUTED.sub(lambda found: _lowered(found[0]), text)


def _lowered(sentence: str) -> str:
    words = re.findall(r"[^\W\d_]+", sentence)
    if sum(len(word) > 3 for word in words) < 2 or not any(set(word) & set("AEIOUY") for word in words):
        return sentence
    return " ".join(word if word in SPELLED else word.capitalize() for word in sentence.split(" "))


_SHOUTED = re.compile(r"(?<![^\W\d_])(?:[^\W\d_a-z]['’A-Z]*[ ,;:\-]{1,3}){2,200}[A-Z]['’A-Z]+(?![^\W\d_])")

_ONE = r"I(?=[.,:;)!?]|\s*$|\s(?:of|and|to|is|was|scene)\b)"  # and not the pronoun

EARLY: list[Rule] = [
    rule(rf"\b({_NUMBERED})\s((?i:{_ROMAN})|{_ONE})(?!\w)", _numbered),
    rule(rf"\b({_REGNAL})\s({_ROMAN}|{_ONE})(?!\w)", _regnal),
    rule(
        r"(?<!\w)(?=M[MCDXLVI]{3})(M{1,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3}))(?!\w)",
        lambda found: year(str(roman(found[1]))),
    ),
    rule(r"\b([A-Z][a-z]{2,20})\s(II|III|IV|VI|VII|VIII|IX|XI|XII|XIII|XIV|XV|XVI|XIX|XX)(?!\w)", _named),
]
LATE: list[Rule] = [
    rule(r"\b([A-Z]{2,6})(?:'|’)?s\b", _plural),
    rule(r"\b[A-Z]{2,5}(?![\w'])", _capitals),
]
