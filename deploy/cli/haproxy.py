"""``shoal haproxy``: writes an HAProxy configuration for several groups."""

from __future__ import annotations

import click

from deploy.targets.haproxy.config import DEFAULTS, Options, render

EPILOG = """\b
Examples:
  shoal haproxy 10.0.0.1:8080 10.0.0.2:8080 > /etc/haproxy/haproxy.cfg
  shoal haproxy --certificate /etc/ssl/speech.pem --listen :443 10.0.0.1:8080 10.0.0.2:8080
  shoal haproxy --dns 10.96.0.10:53 shoal-{0..7}.shoal-groups.default.svc.cluster.local:8080
"""


@click.command(epilog=EPILOG, short_help="HAProxy's configuration for several groups.")
@click.argument("groups", nargs=-1, required=True)
@click.option("--listen", default=DEFAULTS.listen, show_default=True, help="ADDRESS:PORT for clients.")
@click.option("--certificate", default="", metavar="FILE", help="For TLS: certificates and key in one PEM file.")
@click.option("--stats", default="", metavar="ADDRESS:PORT", help="Show HAProxy's statistics and metrics there.")
@click.option("--dns", default="", metavar="ADDRESS:PORT", help="Name server to ask for the groups, again and again.")
def haproxy(groups: tuple[str, ...], **options: str) -> None:
    """Write HAProxy's configuration for GROUPS, each HOST:PORT of a gateway, to standard output.

    Requests with the header X-Voice-Id go to the same group for the same voice, others to the one with the fewest. With
    --dns, groups that have no address now may get one later.
    """
    try:
        click.echo(render(groups, Options(**options)), nl=False)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
