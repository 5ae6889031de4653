"""Formulas as English words: LaTeX, powers, roots and the signs of mathematics."""

from __future__ import annotations

import re

from gateway.text.english_rules import Rule, rule
from gateway.text.numbers import ordinal

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ", "0123456789-n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_COMMANDS = {
    "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠", "ne": "≠", "times": "×", "cdot": "×", "div": "÷",
    "pm": "±", "approx": "≈", "infty": "∞", "in": "∈", "sum": "∑", "int": "∫", "to": "→", "rightarrow": "→",
    "Rightarrow": "⇒", "implies": "⇒", "ldots": "...", "cdots": "...", "left": "", "right": "", "quad": " ", "text": "",
    "mathrm": "", "mathbf": "", "displaystyle": "", "lt": "<", "gt": ">", "prod": "∏", "sqrt": "√",
}  # fmt: skip
_FRACTION = re.compile(r"\\d?frac\s?\{([^{}]{1,80})\}\s?\{([^{}]{1,80})\}")
_COMMAND = re.compile(r"\\([A-Za-z]{1,20}) ?")
_FORMULA = r"\$([^$\n]{1,300}?)\$(?!\d)|\\\(([^\n]{1,300}?)\\\)|\\\[([^\n]{1,300}?)\\\]"
_ALONE = r"\\(?:sqrt|leq|geq|neq|times|cdot|approx|infty|sum|pi|alpha|beta|gamma|theta|lambda|sigma)\b"
_LATEX = re.compile(r"[\\^_={}]")


def _formula(found: re.Match[str]) -> str:
    """A formula between delimiters; two prices in a sentence are none."""
    body = next(part for part in found.groups() if part is not None)
    if found[0][0] == "$" and not _LATEX.search(body):
        return found[0]
    return f" {latex(body)} "


def latex(body: str) -> str:
    """LaTeX as signs of mathematics; the name of an unknown command is its word."""
    body = _FRACTION.sub(r" \1 over \2 ", body)
    body = _COMMAND.sub(lambda found: f" {_COMMANDS.get(found[1], found[1])} ", body)
    body = re.sub(r"_\{([^{}]{1,40})\}|_(\w)", lambda found: f" {found[1] or found[2]} ", body)
    body = re.sub(r"\^\{([^{}]{1,40})\}", r"^\1", body)
    return re.sub(r"[{}\\]", " ", body)


def _power(found: re.Match[str]) -> str:
    exponent = found[1].translate(_SUPERSCRIPTS)
    if exponent in ("2", "3"):
        return f" {'squared' if exponent == '2' else 'cubed'} "
    if exponent.isdigit():
        return f" to the {ordinal(exponent)} "
    return f" to the power of {exponent.replace('-', 'minus ')} "


RULES: list[Rule] = [
    rule(_FORMULA, _formula),
    rule(r"\\d?frac\s?\{[^{}]{1,80}\}\s?\{[^{}]{1,80}\}", lambda found: latex(found[0])),
    rule(_ALONE, lambda found: latex(found[0])),
    rule(r"(?<=[\w)])\^\(?(-?\w{1,6})\)?", _power),
    rule(r"(?<=[^\W_])(?<!km)(?<!cm)(?<!mm)(?<!\dm)(?<!\d m)([⁰¹²³⁴⁵⁶⁷⁸⁹⁻ⁿ]{1,6})", _power),
    rule(r"[₀₁₂₃₄₅₆₇₈₉]{1,6}", lambda found: f" {found[0].translate(_SUBSCRIPTS)} "),
    rule(r"(?<=\d)\s?\*\s?(?=\d)", lambda found: " times "),
]
