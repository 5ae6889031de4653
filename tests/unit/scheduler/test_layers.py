"""The scheduler's rooms depend on each other in one direction, and no modules import each other in a circle."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[3]
LAYERS = [
    "outbox",
    "resources",
    "requests",
    "workers",
    "observer",
    "planning",
    "lifecycle",
    "dispatch",
    "core",
    "observe",
]


def imports() -> dict[str, set[str]]:
    """Each module of the scheduler with the modules of the scheduler that it imports, at run time or for types."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "scheduler").rglob("*.py"):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        names = {
            node.module
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("scheduler.")
        }
        found[module] = names
    assert len(found) > 30
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    list(TopologicalSorter(imports()).static_order())  # raises CycleError with the circle


def test_rooms_import_only_from_rooms_below_them() -> None:
    for module, names in imports().items():
        room = module.split(".")[1]
        if room in LAYERS:
            allowed = LAYERS[: LAYERS.index(room) + 1]
            assert {name.split(".")[1] for name in names} <= set(allowed), module


def test_rooms_are_small() -> None:
    assert len(list((ROOT / "scheduler").glob("*.py"))) <= 8
    lengths = {file.name: len(file.read_text().splitlines()) for file in (ROOT / "scheduler").rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 300} == {}
