"""Documentation of dependencies: the page lists what pyproject.toml declares, with the same versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_lists_every_runtime_dependency_with_its_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["codecs"], *extras["otel"]]
    wanted = [found.groups() for item in declared if (found := re.match(r"([\w.-]+)([^ ;]*)", item))]
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert re.findall(r"^\| `([\w.-]+)` \| `([^`]+)` \| \S", page, re.M) == wanted
