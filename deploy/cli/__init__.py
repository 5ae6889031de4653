"""The ``shoal`` command: one module per subcommand, and what they share."""

from __future__ import annotations

import click

from common.version import VERSION
from deploy.cli.bench import bench
from deploy.cli.haproxy import haproxy
from deploy.cli.keys import keys
from deploy.cli.process_commands import serve, simulate, worker
from deploy.cli.say import say
from deploy.cli.top import top
from deploy.cli.trace import trace
from deploy.cli.voices import voices

EPILOG = """\b
Start here:
  shoal serve                            a server on port 8080, with the bundled model
  shoal say "Good morning." -o hi.wav    in another terminal
  shoal top                              what the server is doing
Each command explains itself: shoal say --help
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="shoal")
@click.option("--server", metavar="URL", help="Address of the server, for the subcommands that use one.")
@click.option("--api-key", metavar="KEY", help="Key, if the server asks for one.")
@click.pass_context
def main(context: click.Context, server: str | None, api_key: str | None) -> None:
    """Streaming speech: serve it, speak with it, watch it and measure it."""
    context.obj = {name: value for name, value in (("address", server), ("api_key", api_key)) if value is not None}


for command in (serve, say, voices, top, trace, bench, simulate, keys, worker, haproxy):
    main.add_command(command)
