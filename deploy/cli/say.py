"""``shoal say``: speaks a text, played as it arrives or written to a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import aiohttp
import click

from deploy.cli import players
from deploy.cli.server import Server, ServerError, server_options
from deploy.cli.sound import with_sizes

NO_DEVICE = "without a sound device, write a file with -o"

FORMATS = ("wav", "pcm", "mp3", "opus", "aac", "flac", "ulaw", "alaw", "wav_ulaw", "wav_alaw")
HEADER_BYTES = 4096  # a WAV header lies within these
EPILOG = """\b
Examples:
  shoal say "Good morning."                        play it as it is made
  shoal say "Good morning." -o morning.mp3         the format follows from the name
  shoal say --voice anna --seed 7 "Me again."      the same seed says it the same way
  shoal say - < chapter.txt -o chapter.wav         text from standard input
  shoal say "Hi." -o - --format mp3 | mpg123 -     sound to standard output
"""


@click.command(epilog=EPILOG, short_help="Speak a text, or write it to a file.")
@click.argument("text")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of playing; - is standard output.")
@click.option("--format", "sound_format", type=click.Choice(FORMATS), help="Default: by FILE's name, else wav.")
@click.option("--voice", metavar="NAME", help="A voice of the server; see: shoal voices list.")
@click.option("--seed", type=int, help="Repeat what was said with this seed.")
@click.option("--temperature", type=click.FloatRange(0, 2), help="Lower is steadier, higher is livelier.")
@click.option("--speed", type=click.FloatRange(0.5, 2), help="Pace, at the same pitch; 1 is as the model speaks.")
@server_options
def say(text: str, output: str | None, sound_format: str | None, address: str, api_key: str, **choices: Any) -> None:
    """Speak TEXT. With - as TEXT, it is read from standard input."""
    fields = {"text": sys.stdin.read() if text == "-" else text, "seed": choices["seed"]}
    fields |= {"reference_id": choices["voice"], "temperature": choices["temperature"]}
    fields["prosody"] = None if choices["speed"] is None else {"speed": choices["speed"]}
    server = Server(address, api_key)
    if output is None:
        if sound_format is not None:
            raise click.UsageError("--format is for files: give one with -o")
        asyncio.run(_play(server, fields))
    else:
        asyncio.run(_save(server, fields | {"format": sound_format or _format_of(output)}, output))


def _format_of(output: str) -> str:
    suffix = Path(output).suffix.removeprefix(".").lower()
    if suffix and suffix not in FORMATS:
        raise click.UsageError(f"the name {output} does not tell a format; give one with --format")
    return suffix or "wav"


async def _play(server: Server, fields: dict[str, Any]) -> None:
    name = players.find()
    if name is None:
        message = f"no program to play sound is installed: install {players.PACKAGES}, or write a file with -o"
        raise click.UsageError(message)
    async with _speech(server, fields | {"format": "pcm"}) as speech:
        command = players.command(name, speech.rate)
        player = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
        assert player.stdin is not None
        try:
            async for data in speech.chunks():
                player.stdin.write(data)
                await player.stdin.drain()
            player.stdin.close()
            await player.wait()
        except ConnectionError:
            raise ServerError(
                f"{name} could not play the sound (exit status {await player.wait()}); {NO_DEVICE}"
            ) from None
        finally:
            if player.returncode is None:
                player.kill()
                await player.wait()
    speech.report(f"played by {name}")


async def _save(server: Server, fields: dict[str, Any], output: str) -> None:
    """Write the sound to a file, or to standard output as it arrives."""
    async with _speech(server, fields) as speech:
        if output == "-":
            async for data in speech.chunks():
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            speech.report("standard output")
            return
        with _file(output) as file:
            async for data in speech.chunks():
                file.write(data)
            _complete(file, fields["format"])
    speech.report(output)


@contextlib.contextmanager
def _file(output: str) -> Iterator[BinaryIO]:
    """Context of a file that gets its name once it is complete."""
    unfinished = Path(f"{output}.part")
    try:
        with unfinished.open("w+b") as file:
            yield file
        os.replace(unfinished, output)
    except aiohttp.ClientError:
        raise
    except OSError as error:
        raise click.FileError(output, str(error.strerror)) from None
    finally:
        unfinished.unlink(missing_ok=True)


def _complete(file: BinaryIO, sound_format: str) -> None:
    """Fill in the sizes in the header of a streamed WAV file."""
    if sound_format.startswith("wav"):
        length = file.tell()
        file.seek(0)
        head = with_sizes(file.read(HEADER_BYTES), length)
        file.seek(0)
        file.write(head)


class _Speech:
    """An accepted request: its sound and its facts."""

    def __init__(self, reply: aiohttp.ClientResponse, started: float) -> None:
        self.rate = int(reply.headers.get("X-Sample-Rate", "44100"))
        self._reply, self._started = reply, started
        self._first: float | None = None
        self._bytes = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        async for data in self._reply.content.iter_any():
            self._first = self._first or time.monotonic() - self._started
            self._bytes += len(data)
            yield data

    def report(self, where: str) -> None:
        first = "nothing came" if self._first is None else f"first sound after {self._first * 1000:.0f} ms"
        seed = self._reply.headers.get("X-Seed", "not told")
        took = time.monotonic() - self._started
        click.echo(f"{where}: {self._bytes:,} bytes in {took:.2f} s, {first}, seed {seed}", err=True)


@contextlib.asynccontextmanager
async def _speech(server: Server, fields: dict[str, Any]) -> AsyncIterator[_Speech]:
    started = time.monotonic()
    known = {name: value for name, value in fields.items() if value is not None}
    async with server.request("POST", "/v1/tts", json=known) as reply:
        yield _Speech(reply, started)
