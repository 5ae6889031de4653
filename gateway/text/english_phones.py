"""Telephone numbers, read digit by digit in their groups."""

from __future__ import annotations

import re

from gateway.text.english_rules import Rule, rule
from gateway.text.numbers import digits

_EMERGENCY = "911|112|999|000|110|119|101|111|988|211|311|411|511|611|711|811"
_CONTEXT = (
    r"[Cc]all(?:ed|ing)?|[Dd]ial(?:led|ing|ed)?|[Pp]hone|[Tt]elephone|[Tt]el\.?|[Ff]ax|[Tt]ext|[Rr]ing|"
    r"[Rr]each(?:able)?|[Mm]obile|[Hh]otline|[Nn]umber"
)
_COUNTED = "miles|times|people|pages|meters|euros|dollars|percent"
_GROUPED = re.compile(r"\+?\(?\d[\d().]*(?:[ .\-/\u2011][\d().]+){1,6}(?![\w])|\+?\d{7,15}(?!\w)")
_SHORT = re.compile(rf"(?<![\w.,$€£+-])(?:{_EMERGENCY})(?!\w|[.,]\d| (?:{_COUNTED}))")


def _groups(number: str) -> str:
    plus = "plus " if number.startswith("+") else ""
    return plus + ", ".join(digits(group) for group in re.findall(r"\d+", number))


def _number(found: re.Match[str]) -> str:
    """A number of seven digits or more; fewer are no telephone number."""
    text, end = found[0], ""
    while text[-1] in ".)(":
        text, end = text[:-1], text[-1] + end
    return _groups(text) + end if sum(map(str.isdigit, text)) >= 7 else found[0]


def _in_context(found: re.Match[str]) -> str:
    return found[1] + _SHORT.sub(lambda short: digits(short[0]), _GROUPED.sub(_number, found[2]))


RULES: list[Rule] = [
    rule(rf"\b({_CONTEXT})\b([^\n!?;]{{1,80}})", _in_context),
    rule(r"(?<![\w+])\+\d{1,3}(?:[ .\-]?\(?\d{1,5}\)?){2,6}(?![\w])", _number),
    rule(r"(?<![\w.-])\d{3}-\d{4}-\d{4}(?![\w-])", _number),
]
