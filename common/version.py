"""The version of Shoal that runs."""

from __future__ import annotations

import tomllib
from importlib import metadata

from common.config import ROOT


def _version() -> str:
    try:
        return metadata.version("shoal")
    except metadata.PackageNotFoundError:  # run from its source
        project: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        return project["version"]


VERSION = _version()
