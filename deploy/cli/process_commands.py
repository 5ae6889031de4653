"""``shoal serve``, ``shoal worker`` and ``shoal simulate``: commands with a command line of their own."""

from __future__ import annotations

import sys

import click

PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(add_help_option=False, context_settings=PASSED_ON, short_help="Start a server and keep it running.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def serve(arguments: tuple[str, ...]) -> None:
    from deploy.group import serve as server  # loaded late: the other commands do without it

    sys.exit(server.main(arguments, "shoal serve"))


@click.command(add_help_option=False, context_settings=PASSED_ON, short_help="Run a worker for a group elsewhere.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def worker(arguments: tuple[str, ...]) -> None:
    from deploy.group import worker as alone  # loaded late: the other commands do without it

    sys.exit(alone.main(arguments))


@click.command(add_help_option=False, context_settings=PASSED_ON, short_help="Run the scheduler against a cost model.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def simulate(arguments: tuple[str, ...]) -> None:
    from scheduler.simulate.__main__ import main  # loaded late: the other commands do without it

    sys.exit(main(list(arguments)))
