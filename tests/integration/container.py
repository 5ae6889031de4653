"""Reads deploy/targets/container/Containerfile: what its image holds and runs, without a container engine."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
from pathlib import Path

from tests.integration.group import ROOT

FOLDER = ROOT / "deploy" / "targets" / "container"
WORKDIR = "/opt/shoal"


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments of each line of the Containerfile, continued lines joined."""
    text = re.sub(r"\\\n\s*", " ", (FOLDER / "Containerfile").read_text())
    lines = (line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def of(name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions() if instruction == name]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    first = max(index for index, (name, _) in enumerate(found) if name == "FROM")
    return found[first:]


def copies(stage: list[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Sources, in the build context, and destination of each COPY of a stage."""
    words = [arguments.split() for name, arguments in stage if name == "COPY" and not arguments.startswith("--from")]
    return [(sources, destination) for *sources, destination in words]


def entry_point() -> list[str]:
    """The command that the image runs."""
    (arguments,) = of("ENTRYPOINT")
    return list(json.loads(arguments))


def health_check() -> list[str]:
    (arguments,) = of("HEALTHCHECK")
    return list(json.loads(arguments.partition(" CMD ")[2]))


def sent(path: str) -> bool:
    """Whether .dockerignore lets a path into the build context: the last pattern that fits it, or a folder above it,
    decides."""
    parents = ["/".join(path.split("/")[:depth]) for depth in range(1, path.count("/") + 2)]
    included = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        names = [part.rsplit("/", 1)[-1] for part in parents] if "**/" in line else parents
        if line and not line.startswith("#") and any(fnmatch.fnmatchcase(name, pattern) for name in names):
            included = line.startswith("!")
    return included


def first_stage() -> list[tuple[str, str]]:
    found = instructions()
    return found[: found.index(last_stage()[0])]


def build(place: Path) -> None:
    """Lay the files of the image's last stage, with this checkout's environment."""
    lay(place, last_stage())
    (place / ".venv").symlink_to(ROOT / ".venv")


def lay(place: Path, stage: list[tuple[str, str]]) -> None:
    """Copy the files of a stage."""
    for sources, destination in copies(stage):
        if destination.endswith("/"):
            (place / destination).mkdir(parents=True, exist_ok=True)
        for source in sources:
            origin = ROOT / source
            if origin.is_dir():
                shutil.copytree(origin, place / destination, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(origin, place / destination / origin.name)
