"""Numbers as English words."""

from __future__ import annotations

from num2words import num2words

MOST_DIGITS = 15  # a longer number is read digit by digit
_DIGITS = "zero one two three four five six seven eight nine".split()


def cardinal(number: str) -> str:
    """``1,234.5``: one thousand two hundred thirty-four point five."""
    whole, point, fraction = number.replace(",", "").partition(".")
    if len(whole) > MOST_DIGITS or (len(whole) > 1 and whole[0] == "0"):
        words = digits(whole)
    else:
        words = _plain(num2words(int(whole or "0")))
    return f"{words} point {digits(fraction)}" if point and fraction else words


def ordinal(number: str) -> str:
    """``21``: twenty-first."""
    if len(number) > MOST_DIGITS:
        return digits(number)
    return _plain(num2words(int(number), to="ordinal"))


def year(number: str) -> str:
    """``1905``: nineteen oh five. Two digits are read as they are said after a century."""
    if len(number) == 2:
        return f"oh {digits(number[1])}" if number[0] == "0" else cardinal(number)
    return _plain(num2words(int(number), to="year")).replace("oh-", "oh ")


def digits(number: str) -> str:
    """One by one."""
    return " ".join(_DIGITS[int(digit)] for digit in number)


def amount(number: str, one: str, many: str) -> str:
    """A number of something."""
    return f"{cardinal(number)} {one if number == '1' else many}"


def plural(words: str) -> str:
    """Of a number: nineties, two thousands."""
    return words[:-1] + "ies" if words.endswith("y") else words + "s"


def _plain(words: str) -> str:
    return words.replace(",", "").replace(" and ", " ")
