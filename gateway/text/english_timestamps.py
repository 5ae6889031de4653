"""Timestamps, months and decades in figures as English words."""

from __future__ import annotations

import re

from gateway.text.english_rules import Rule, rule
from gateway.text.english_words import MONTHS
from gateway.text.numbers import amount, cardinal, ordinal, plural, year

_CLOCK = r"(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,]\d{1,9})?)?"
_ZONE = r"\s?(?:Z\b|UTC\b|GMT\b|[+\-\u2212]\d{2}:?\d{2}(?!\d))"
_LASTING = "wait|Wait|after|for|within|every|takes|took|lasts|under"
_NO_SECONDS = "".join(rf"(?<!\b{word} )" for word in _LASTING.split("|"))


def _date(found: re.Match[str]) -> str | None:
    month, day = int(found["month"]), int(found["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return f"{MONTHS[month - 1]} {ordinal(str(day))}, {year(found['year'])}"


def _clock(found: re.Match[str]) -> str:
    minute, second = found["minute"], found["second"]
    words = cardinal(str(int(found["hour"])))
    if minute != "00":
        words += f" oh {cardinal(minute[1])}" if minute[0] == "0" else f" {cardinal(minute)}"
    else:
        words += " hundred hours"
    return words + (f" and {cardinal(str(int(second)))} seconds" if second and int(second) else "")


def _timestamp(found: re.Match[str]) -> str:
    date = _date(found)
    return found[0] if date is None else f"{date}, {_clock(found)}"


def _dotted(found: re.Match[str]) -> str:
    month, day = int(found["month"]), int(found["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return found[0]
    return f"the {ordinal(str(day))} of {MONTHS[month - 1]}, {year(found['year'])}"


def _year_month(found: re.Match[str]) -> str:
    return f"{MONTHS[int(found[2]) - 1]} {year(found[1])}"


RULES: list[Rule] = [
    rule(r"(?<![\w:.,])([01]?\d|2[0-3])h([0-5]\d)(?!\w)", lambda found: f"{found[1]}:{found[2]}"),
    rule(rf"\b({_LASTING}) (\d{{1,6}})s(?!\w)", lambda found: f"{found[1]} {amount(found[2], 'second', 'seconds')}"),
    rule(
        rf"(?<![\w-])(?P<year>\d{{4}})-(?P<month>\d{{2}})-(?P<day>\d{{2}})(?:T|,?\s){_CLOCK}(?:{_ZONE})?(?![\w:])",
        _timestamp,
    ),
    rule(r"(?<=\d:[0-5]\d:[0-5]\d)[.,]\d{1,9}", lambda found: ""),
    rule(r"(?<![\w.])(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>(?:19|20)\d{2})(?![\w]|\.\d)", _dotted),
    rule(r"(?<![\w-])((?:19|20)\d{2})-(0[1-9]|1[0-2])(?![\w-])", _year_month),
    rule(rf"{_NO_SECONDS}(?<![\w$€£¥.,:'])([2-9]0)'?s\b", lambda found: plural(cardinal(found[1]))),
]
