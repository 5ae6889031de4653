"""``shoal voices``: manages the server's voice library."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import click

from deploy.cli.server import Server, server_options

EPILOG = """\b
Examples:
  shoal voices add anna anna.wav --text "What Anna says in the recording."
  shoal voices list
  shoal say --voice anna "Hello, it's me."
  shoal voices rename anna "Anna B"
  shoal voices delete "Anna B"
"""


@click.group(epilog=EPILOG, short_help="List, add, rename and delete voices.")
def voices() -> None:
    """The voices of a server. A voice is learnt from a recording of 1 to 60 seconds and the words spoken in it."""


@voices.command("list")
@click.option("--json", "as_json", is_flag=True, help="As a JSON list.")
@server_options
def list_all(as_json: bool, address: str, api_key: str) -> None:
    """List the voices by name."""
    names = _call(Server(address, api_key), "GET", "list")["reference_ids"]
    if as_json:
        click.echo(json.dumps(names))
    elif names:
        click.echo("\n".join(names))
    else:
        click.echo("No voices yet; add one with: shoal voices add NAME RECORDING --text WORDS", err=True)


@voices.command()
@click.argument("name")
@click.argument("recording", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--text", help="The words of the recording, exactly as spoken.")
@click.option(
    "--text-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file with these words."
)
@server_options
def add(name: str, recording: Path, text: str | None, text_file: Path | None, address: str, api_key: str) -> None:
    """Learn the voice NAME from a RECORDING (WAV, FLAC, MP3 or OGG).

    A clear recording of one speaker, 5 to 20 seconds long, without music or echo, gives the best voice.
    """
    if (text is None) == (text_file is None):
        raise click.UsageError("give the words of the recording with --text or --text-file")
    spoken = text if text_file is None else text_file.read_text().strip()
    form = aiohttp.FormData({"id": name, "text": spoken or ""})
    form.add_field("audio", recording.read_bytes(), filename=recording.name)
    click.echo(_call(Server(address, api_key), "POST", "add", data=form)["message"])


@voices.command()
@click.argument("old")
@click.argument("new")
@server_options
def rename(old: str, new: str, address: str, api_key: str) -> None:
    """Give the voice OLD the name NEW."""
    fields = {"old_reference_id": old, "new_reference_id": new}
    click.echo(_call(Server(address, api_key), "POST", "update", json=fields)["message"])


@voices.command()
@click.argument("name")
@click.confirmation_option("-y", "--yes", prompt="Delete this voice and its recording?", help="Do not ask.")
@server_options
def delete(name: str, address: str, api_key: str) -> None:
    """Delete the voice NAME and its recording."""
    click.echo(_call(Server(address, api_key), "DELETE", "delete", json={"reference_id": name})["message"])


voices.add_command(delete, "rm")


def _call(server: Server, method: str, what: str, **body: Any) -> dict[str, Any]:
    async def call() -> dict[str, Any]:
        async with server.request(method, f"/v1/references/{what}?format=json", **body) as reply:
            fields: dict[str, Any] = await reply.json()
            return fields

    return asyncio.run(call())
