"""Imports go one way: no circle of modules anywhere, and none of packages inside a room."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("common", "gateway", "scheduler", "ar_worker", "vocoder_worker", "deploy", "models")


def modules() -> dict[str, Path]:
    """The modules of all rooms, by dotted name."""
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(module: str) -> Iterator[str]:
    """Modules of the project that a module imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (one for one in (name if name in MODULES else node.module,) if one in MODULES)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


GRAPH = {module: set(imports(module)) - {module} for module in MODULES}


def circle(graph: dict[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def test_no_circle_of_modules() -> None:
    assert circle(GRAPH) is None


@pytest.mark.parametrize("room", ROOMS)
def test_no_circle_of_packages(room: str) -> None:
    """A module at the root of a room stands for itself, all below a folder for that folder."""

    def package(module: str) -> str:
        parts = module.split(".")
        inner = len(parts) > 2 or (ROOT / room / parts[1]).is_dir() if len(parts) > 1 else False
        return ".".join(parts[:2]) if inner else module + "."

    graph: dict[str, set[str]] = {}
    for module, imported in GRAPH.items():
        if module.split(".")[0] == room:
            inside = {package(one) for one in imported if one.split(".")[0] == room}
            graph.setdefault(package(module), set()).update(inside - {package(module)})
    assert circle(graph) is None


def test_a_circle_would_be_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None
