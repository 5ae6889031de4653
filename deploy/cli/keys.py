"""``shoal keys``: the key directory of a group with workers on several machines."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from common import key_directory as key_files
from common.config import ConfigError
from common.key_directory import PUBLIC, SECRET

GROUP = ("scheduler", "gateway", "ar_worker", "vocoder_worker")  # the names of a group with one of each
KNOWN_TO_WORKERS = ("scheduler", "gateway")

EPILOG = """\b
Examples:
  shoal keys create keys                          a pair for each process of a group
  shoal keys create keys ar_worker-b              and one for a worker elsewhere
  shoal keys export keys ar_worker-b for-b        what that worker needs: copy it to its machine
The group then runs with:  --set transport.keys=/path/to/keys
"""

DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.group(epilog=EPILOG, short_help="Keys for workers on other machines.")
def keys() -> None:
    """Key pairs by which the processes of a group know each other over tcp, and encrypt what they say.

    A process finds its pair under its own name. Whoever has a public key NAME.key in the directory may connect: to shut
    out a worker, delete its file.
    """


@keys.command()
@click.argument("directory", type=DIRECTORY)
@click.argument("names", nargs=-1)
def create(directory: Path, names: tuple[str, ...]) -> None:
    """Make key pairs in DIRECTORY for the processes NAMES; without names, for a group with one process of each kind."""
    try:
        for name in names or GROUP:
            key_files.create(directory, name)
            click.echo(f"{directory / name}{PUBLIC} and {SECRET}")
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from None


@keys.command()
@click.argument("directory", type=DIRECTORY)
@click.argument("name")
@click.argument("target", type=DIRECTORY)
def export(directory: Path, name: str, target: Path) -> None:
    """Put into TARGET what the worker NAME needs on its machine: its pair, and whom it has to know."""
    files = [f"{name}{SECRET}", *(f"{known}{PUBLIC}" for known in (name, *KNOWN_TO_WORKERS))]
    missing = [file for file in files if not (directory / file).is_file()]
    if missing:
        raise click.ClickException(f"{directory} has no {', '.join(missing)}")
    try:
        os.makedirs(target, mode=0o700, exist_ok=True)
        for file in files:
            shutil.copy(directory / file, target / file)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{target}: {name} can run with it")
