"""Reads the command lines of processes and scripts, with click."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def parse(command: click.Command, program: str, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the parameters of a command line by name. ``arguments``: default those of this process.

    Exits with a message on ``--help`` and, with status 2, on an error.
    """
    try:
        with command.make_context(program, list(sys.argv[1:] if arguments is None else arguments)) as context:
            return context.params
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)


def process_command(description: str, name: str) -> click.Command:
    """Return the command of a process of a group: ``--run-dir DIR [--name NAME]``. ``name``: the default one."""
    return click.Command(
        None,
        help=description,
        params=[
            click.Option(
                ["--run-dir"],
                type=click.Path(path_type=Path),
                metavar="DIR",
                required=True,
                help="run directory, with its config.json",
            ),
            click.Option(["--name"], default=name, show_default=True, help="name of this process within the group"),
        ],
    )
