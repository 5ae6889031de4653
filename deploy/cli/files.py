"""Output files of commands."""

from __future__ import annotations

import os
from pathlib import Path

import click


class OutputFile(click.Path):
    """An output file that is written at the end of a command; checked for writability before the work."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not os.access(path.parent, os.W_OK):
            self.fail(f"{path.parent} is no directory in which files can be written", param, ctx)
        return path
