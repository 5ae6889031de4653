"""``shoal trace``: saves a trace of a request or of the last seconds through the whole pipeline, for Perfetto."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import quote

import click

from deploy.cli.files import OutputFile
from deploy.cli.server import Server, server_options


@click.command(short_help="Write a trace of a request, or of everything.")
@click.argument("request_id", required=False)
@click.option("-o", "--output", type=OutputFile(), required=True, help="File to write.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 60, min_open=True),
    default=10.0,
    show_default=True,
    help="How far back, without a request.",
)
@server_options
def trace(request_id: str | None, output: Path, seconds: float, address: str, api_key: str) -> None:
    """Write a trace of a request, named by its X-Request-Id, or without one of everything that went on lately.

    \b
      shoal trace 5f0c2a -o one.json
      shoal trace --seconds 5 -o all.json

    Open the file at https://ui.perfetto.dev or chrome://tracing.
    """
    path = f"/debug/requests/{quote(request_id, safe='')}/trace" if request_id else f"/debug/trace?seconds={seconds}"
    data = asyncio.run(_fetch(Server(address, api_key), path))
    output.write_bytes(data)
    if not has_spans(data):
        click.secho(f"warning: {output} is empty: no request was under way in that time", fg="yellow", err=True)


def has_spans(trace_json: bytes) -> bool:
    """Return whether a Chrome trace has an event besides the names of its tracks (phase ``M``)."""
    return any(event.get("ph") != "M" for event in json.loads(trace_json)["traceEvents"])


async def _fetch(server: Server, path: str) -> bytes:
    async with server.request("GET", path) as reply:
        return await reply.read()
