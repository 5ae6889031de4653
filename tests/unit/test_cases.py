"""The list of cases names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = [line for line in (ROOT / "tests" / "CASES.md").read_text().splitlines() if line.startswith(("| BC-", "| N-"))]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split()[1])
def test_each_case_has_a_test_that_exists(row: str) -> None:
    _, _, about, tests = (cell.strip() for cell in row.strip("|").split("|"))
    assert about
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests)
    assert named or tests.startswith("none:")
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text())
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        there |= {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert test in there, f"{file}::{test}"


def test_no_case_is_listed_twice() -> None:
    cases = [row.split()[1] for row in ROWS]
    assert len(cases) == len(set(cases)) > 100
