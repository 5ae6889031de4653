"""The form of an English rule: a pattern and the function that gives its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

Rule: TypeAlias = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


def rule(pattern: str, say: Callable[[re.Match[str]], str]) -> Rule:
    """A rule of a pattern that takes linear time: bounded repetitions, or beginnings that can't overlap."""
    return re.compile(pattern), say
