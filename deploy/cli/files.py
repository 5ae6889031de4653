"""Files that commands write."""

from __future__ import annotations

import os
from pathlib import Path

import click


class OutputFile(click.Path):
    """A file that is written at the end of a command. That it can be is found out before the work."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not os.access(path.parent, os.W_OK):
            self.fail(f"{path.parent} is no directory in which files can be written", param, ctx)
        return path
