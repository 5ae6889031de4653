"""English text normalisation: numbers, dates, times, money, units and abbreviations as words.

Each rule is a pattern and what is said for it; they apply in order, so the particular ones come first. Words that no
rule knows are left as they are.
"""

from __future__ import annotations

import re
import unicodedata

from gateway.text import english_mathematics, english_names, english_phones, english_timestamps
from gateway.text.english_rules import Rule
from gateway.text.english_rules import rule as _rule
from gateway.text.english_words import (
    ABBREVIATIONS,
    CURRENCIES,
    CURRENCY_CODES,
    FRACTIONS,
    IN_ADDRESSES,
    MAGNITUDES,
    MONTHS,
    SIGNS,
    TITLES,
    UNITS,
)
from gateway.text.lines import goes_on
from gateway.text.numbers import amount, cardinal, digits, ordinal, plural, year

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_FREE = r"(?<![\w.,])"  # no part of a word or number stands before
_MONTH = r"(?P<month>(?:" + "|".join(f"{month[:3]}(?:{month[3:]}|t?\\.?)" for month in MONTHS) + r"))(?!\w)"
_HALF = r"(?P<half>[AaPp])\.?[Mm](?:\.(?P<stop>(?=\s+[A-Z]|\s*$))?|\b)"
_TOP_LEVEL = r"(?:co\.uk|com|org|net|edu|gov|io|ai|dev|info|app)"


def _alternatives(words: dict[str, object]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def _address(found: re.Match[str]) -> str:
    spoken = found[0].removeprefix("https://").removeprefix("http://")
    address = spoken.rstrip(".,;:!?")
    words = "".join(f" {IN_ADDRESSES[sign]} " if sign in IN_ADDRESSES else sign for sign in address)
    return f" {words.replace('www ', 'w w w ')}{spoken[len(address) :]}"


def _day(month: str, day: str, year_: str | None) -> str | None:
    """None: there is no such day."""
    if not 1 <= int(day) <= 31:
        return None
    return f"{month} {ordinal(day)}" + (f", {year(year_)}" if year_ else "")


def _numeric_date(found: re.Match[str]) -> str:
    first, second = int(found[1]), int(found[2])
    month, day = (second, first) if first > 12 else (first, second)
    spoken = _day(MONTHS[month - 1], str(day), found[3]) if 1 <= month <= 12 else None
    return spoken or " slash ".join(cardinal(part) for part in found.groups())


def _iso_date(found: re.Match[str]) -> str:
    month = int(found[2])
    spoken = _day(MONTHS[month - 1], found[3], found[1]) if 1 <= month <= 12 else None
    return spoken or " ".join(digits(part) for part in found.groups())


def _full_month(name: str) -> str:
    return next(month for month in MONTHS if month.startswith(name[:3]))


def _month_day(found: re.Match[str]) -> str:
    return _day(_full_month(found["month"]), found["day"], found["year"]) or found[0]


def _day_month(found: re.Match[str]) -> str:
    month = _full_month(found["month"])
    if not 1 <= int(found["day"]) <= 31:
        return found[0]
    return f"the {ordinal(found['day'])} of {month}" + (f", {year(found['year'])}" if found["year"] else "")


def _stop(found: re.Match[str]) -> str:
    """Keep the full stop of an abbreviation that also ends a sentence."""
    return "." if found["stop"] is not None else ""


def _half_day(found: re.Match[str]) -> str:
    return "" if found["half"] is None else f" {found['half'].lower()} m{_stop(found)}"


def _time(found: re.Match[str]) -> str:
    hour, minute, second = found[1], found[2], found[3]
    if int(hour) > 24 or int(minute) > 59:
        return " to ".join(cardinal(part) for part in (hour, minute, second) if part)
    words = cardinal(str(int(hour)))
    if minute != "00" or second:
        words += " " + (f"oh {digits(minute[1])}" if minute[0] == "0" else cardinal(minute))
    elif found["half"] is None:
        words += " o'clock" if 1 <= int(hour) <= 12 else " hundred hours"
    return words + (f" and {amount(str(int(second)), 'second', 'seconds')}" if second else "") + _half_day(found)


def _phone(found: re.Match[str]) -> str:
    plus = "plus " if found[0].startswith("+") else ""
    return plus + ", ".join(digits(part) for part in found.groups() if part)


def _money(number: str, sign: str, magnitude: str | None) -> str:
    one, many, cent, cents = CURRENCIES[sign]
    if magnitude:
        return f"{cardinal(number)} {MAGNITUDES[magnitude]} {many}"
    whole, _, part = number.partition(".")
    if len(part) != 2:
        return amount(number, one, many)
    small = amount(str(int(part)), cent, cents)
    if int(whole.replace(",", "")) == 0:
        return small
    return amount(whole, one, many) + ("" if int(part) == 0 else f" and {small}")


def _years(found: re.Match[str]) -> str:
    return plural(year(found[1])) if len(found[1]) == 4 else plural(cardinal(found[1]))


def _fraction(found: re.Match[str]) -> str:
    above, below = found[1], found[2]
    if (above, below) in (("24", "7"), ("9", "11")):
        return f"{cardinal(above)} {cardinal(below)}"
    if not 0 < int(above) < int(below):
        return f"{cardinal(above)} slash {cardinal(below)}"
    name = {"2": "half", "4": "quarter"}.get(below) or ordinal(below)
    return f"{cardinal(above)} {name if above == '1' else plural(name)}"


def _letters(found: re.Match[str]) -> str:
    return " ".join(letter for letter in found[0] if letter != ".")


_MEASURE = rf"(?:[€£¥₹%]|(?:{_alternatives({**UNITS, **CURRENCY_CODES})})(?![\w/²³]))"

RULES: list[Rule] = [
    *english_mathematics.RULES,
    _rule(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+", _address),
    _rule(r"(?:https?://|\bwww\.)[^\s<>\"|]+", _address),
    _rule(rf"(?<![\w.-])(?:[a-z0-9-]{{1,63}}\.){{1,8}}{_TOP_LEVEL}\b(?:/[^\s<>\"|]*)?", _address),
    *english_timestamps.RULES,
    _rule(r"(?<![\w/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\w/])", _numeric_date),
    _rule(r"(?<![\w-])(\d{4})-(\d{2})-(\d{2})(?![\w-])", _iso_date),
    _rule(rf"\b{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?(?![\w:])", _month_day),
    _rule(
        rf"(?:\bthe )?{_FREE}(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? (?P<year>\d{{4}})(?!\w))?",
        _day_month,
    ),
    _rule(
        rf"\b{_MONTH},? (?P<year>\d{{4}})(?!\w)", lambda found: f"{_full_month(found['month'])} {year(found['year'])}"
    ),
    _rule(r"(?<![\w'])(1[1-9]\d0|20\d0)'?s\b", _years),
    _rule(r"(?<!\w)'(\d0)'?s\b", _years),
    _rule(rf"(?<![\w:.])(\d{{1,2}}):(\d{{2}})(?::(\d{{2}}))?(?![\d:])(?:\s?{_HALF})?", _time),
    _rule(rf"{_FREE}(\d{{1,2}})\s?{_HALF}", lambda found: cardinal(found[1]) + _half_day(found)),
    *english_phones.RULES,
    _rule(r"(?<=[$€£¥₹])(\s?\d{1,3}),(?=\d{1,2}(?!\w|[.,]\d))", lambda found: f"{found[1]}."),
    _rule(rf"(?<![\w.,])(\d{{1,3}}),(?=\d{{1,2}}\s?{_MEASURE})", lambda found: f"{found[1]}."),
    _rule(
        r"(?<![\w.-])\+?(?:(?<=\+)(\d{1,3})[ .-]|(\d)[ .-])?\(?(\d{3})\)?[ .-]{1,2}(\d{3})[ .-](\d{4})(?![\w-])", _phone
    ),
    _rule(r"(?<![\w.-])(\d{3})-(\d{4})(?![\w-])", _phone),
    _rule(rf"(?<![\w.,-])({_NUMBER})(?:-|\s?–\s?)(?=[$€£¥₹]?\d)(?!\d+-)", lambda found: f"{found[1]} to "),
    _rule(r"(?<=[$€£¥₹]\d)(?:-|\s?–\s?)(?=[$€£¥₹]?\d)", lambda found: " to "),
    _rule(r"(?<![\w)])[-−](?=[$€£¥₹]?\d)", lambda found: " minus "),
    _rule(
        rf"(?:US)?([$€£¥₹])\s?({_NUMBER})(?:\s?({_alternatives(dict(MAGNITUDES))})\b)?",
        lambda found: _money(found[2], found[1], found[3]),
    ),
    _rule(
        rf"{_FREE}({_NUMBER})\s?(?:([€£¥₹])|({_alternatives(dict(CURRENCY_CODES))})\b)",
        lambda found: _money(found[1], found[2] or CURRENCY_CODES[found[3]], None),
    ),
    _rule(rf"{_FREE}({_NUMBER})\s?%", lambda found: f"{cardinal(found[1])} percent"),
    _rule(
        rf"{_FREE}({_NUMBER})[-\s]?({_alternatives(dict(UNITS))})(?![\w/²³])",
        lambda found: amount(found[1], *UNITS[found[2]]),
    ),
    _rule(r"(?<!\w)(\d+)(?:st|nd|rd|th)\b", lambda found: ordinal(found[1])),
    _rule(r"(?<!\d)(\d+):(\d+)(?!\d)", lambda found: f"{cardinal(found[1])} to {cardinal(found[2])}"),
    _rule(r"(?<![\w.])\.(?=\d+(?!\w))", lambda found: "0."),
    _rule(rf"(?<!\d)(\d+)\s?([{''.join(FRACTIONS)}])", lambda found: f"{cardinal(found[1])} and {FRACTIONS[found[2]]}"),
    _rule(rf"[{''.join(FRACTIONS)}]", lambda found: FRACTIONS[found[0]]),
    _rule(r"(?<=\d) (?=1/[234](?!\d))", lambda found: " and "),
    _rule(r"(?<![\w/])(\d{1,2})/(\d{1,2})(?![\w/])", _fraction),
    _rule(r"(?:\b[Nn]o\.\s?|#)(?=\d)", lambda found: "number "),
    _rule(r"\bp\.\s?(?=\d)", lambda found: "page "),
    *english_names.EARLY,
    _rule(rf"\b({'|'.join(TITLES)})\.(?=\s)", lambda found: TITLES[found[1]]),
    _rule(r"\bSt\.(?=\s[A-Z])(?<![a-z] St\.)", lambda found: "Saint"),
    _rule(r"\bSt\.(?P<stop>(?=\s*$|\s+[A-Z]))?", lambda found: "street" + _stop(found)),
    _rule(
        rf"(?<!\w)({_alternatives(dict(ABBREVIATIONS))})(?P<stop>(?=\s*$))?",
        lambda found: ABBREVIATIONS[found[1]] + _stop(found),
    ),
    _rule(r"\b(?:[A-Z]\.){2,}", _letters),
    _rule(rf"(?<!\w){_HALF}", lambda found: _half_day(found) if "." in found[0] else found[0]),
    _rule(
        r"(?<![\w.])\d+(?:\.\d+){2,}(?!\w)",
        lambda found: " point ".join(cardinal(part) for part in found[0].split(".")),
    ),
    _rule(r"(?<![\w.,])(1[1-9]\d\d|20\d\d)(?![\w]|[.,]\d)", lambda found: year(found[1])),
    _rule(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])", lambda found: " "),
    _rule(_NUMBER, lambda found: cardinal(found[0])),
    *english_names.LATE,
]

_WIDE = re.compile(r"[\u2103\u2109\u3300-\u33ff\uff01-\uff5e]")  # ℃, ㎞ and full-width signs
_SIGN = re.compile("[" + re.escape("".join(SIGNS)) + "]")
_BLANKS = re.compile(r"[^\S\n]+")
_LINE_END = re.compile(r" ?\n\s*([-*•#>]+\s+)?")
_RULER = re.compile(r"[-=_*~#]{2,}|^\s*[-*•#>]+\s+")
_CELL = re.compile(r"(?<=\w)[^\S\n]*\|[^\S\n]*(?=\w)")
_DECORATION = re.compile(r"[*_`^~|{}•®™]")
_SPACES = re.compile(r"\s+")
_QUOTES = str.maketrans(
    {"‘": "'", "’": "'", "‚": "'", "‛": "'", "“": '"', "”": '"', "„": '"', "‟": '"', "«": '"', "»": '"', "…": "..."}
)


def read_out(text: str) -> str:
    """Normalize a text to words on one line."""
    text = english_names.quietened(_plain(text))
    for pattern, say in RULES:
        text = pattern.sub(say, text)
    text = _SIGN.sub(lambda found: f" {SIGNS[found[0]]} ", text)
    text = _SPACES.sub(" ", _DECORATION.sub(" ", text))
    return re.sub(r" (?=[,.;:!?](?:\s|$))", "", text).strip()


def _plain(text: str) -> str:
    """Simplify quotes and digits, drop rulers and bullets, and end each line with a full stop."""
    text = _WIDE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), unicodedata.normalize("NFC", text))
    text = "".join(_digit(letter) for letter in text.translate(_QUOTES))
    text = _BLANKS.sub(" ", text.strip())
    return _LINE_END.sub(_joint, _CELL.sub(", ", _RULER.sub(" ", text)))


def _digit(letter: str) -> str:
    value = unicodedata.decimal(letter, None) if not letter.isascii() else None
    return letter if value is None else str(value)


def _joint(found: re.Match[str]) -> str:
    """End the line before a break with a full stop, unless its sentence goes on."""
    text, start, end = found.string, found.start(), found.end()
    line = text[max(0, start - 200) : start].rpartition("\n")[2]
    before, after = line[-1:], text[end : end + 80].partition("\n")[0]
    paragraph = found[0].count("\n") > 1
    if not before.isalnum() or (not found[1] and not paragraph and goes_on(line, after)):
        return " "
    return ". "
