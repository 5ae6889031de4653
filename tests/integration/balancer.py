"""HAProxy in front of groups, and a load of streams with many voices."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp

from deploy.targets.haproxy.config import DEFAULTS, Options, render
from tests.integration.client import Reply, post
from tests.integration.group import Group, costs, eventually, free_port, is_ready, running

FRAMES = 40  # of each stream
STEP_MS = 20.0
VOICES = [f"voice-{n}" for n in range(60)]
STREAMS = 18  # at a time
WITHOUT_VOICE = 5  # one request in so many has no voice


def program() -> str:
    path = shutil.which("haproxy")
    assert path, "these tests need HAProxy (Debian's package haproxy)"
    return path


def valid(file: Path) -> str:
    """What HAProxy says against a configuration; nothing, if all is well."""
    done = subprocess.run([program(), "-c", "-q", "-f", str(file)], capture_output=True, text=True, timeout=20)
    return done.stderr


@contextmanager
def haproxy(groups: Sequence[str], options: Options = DEFAULTS) -> Iterator[str]:
    """The base address of an HAProxy that runs the generated configuration."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="shoal-haproxy-") as directory:
        file = Path(directory) / "haproxy.cfg"
        file.write_text(render(groups, options._replace(listen=f"127.0.0.1:{port}")))
        with (Path(directory) / "log").open("w") as log:
            process = subprocess.Popen([program(), "-db", "-f", str(file)], stdout=log, stderr=subprocess.STDOUT)
            try:
                base = f"http://127.0.0.1:{port}"
                eventually(lambda: is_ready(base), 20)
                yield base
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)


@contextmanager
def groups(*options: list[str]) -> Iterator[list[Group]]:
    """A group for each list of options, started at the same time."""
    with ExitStack() as stack, ThreadPoolExecutor(len(options)) as threads:
        contexts = [running(*costs(STEP_MS, ar_worker__cost__frames=FRAMES), *more) for more in options]
        started = [threads.submit(context.__enter__) for context in contexts]
        for context, future in zip(contexts, started, strict=True):
            future.exception()  # waits
            if future.exception() is None:
                stack.push(context.__exit__)
        yield [future.result() for future in started]


def kill(group: Group) -> None:
    """All of it at once."""
    for process in group.tree():
        process.kill()


class Sent(NamedTuple):
    """One request of the load. ``voice``: "" for none."""

    voice: str
    reply: Reply

    @property
    def group(self) -> str:
        return self.reply.headers["X-Served-By"]


class Load:
    """Streams with many voices, so many at a time, while the context lasts. Use :attr:`sent` after it."""

    def __init__(self, base: str) -> None:
        self.sent: list[Sent] = []
        self._base = base
        self._voices = itertools.cycle(VOICES)
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._listen(n)) for n in range(STREAMS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _listen(self, number: int) -> None:
        for count in itertools.count(number):
            if self._stopping:
                return
            voice = "" if count % WITHOUT_VOICE == 0 else next(self._voices)
            headers = {"X-Voice-Id": voice} if voice else {}
            reply = await post(self._base, "/v1/tts", {"text": "Hello.", "format": "pcm"}, headers=headers)
            self.sent.append(Sent(voice, reply))

    def failed(self, whole: int) -> list[Sent]:
        """Those that are not whole, a whole one having so many bytes."""
        return [one for one in self.sent if one.reply.status != 200 or one.reply.broken or len(one.reply.body) != whole]


async def homes(base: str) -> dict[str, str]:
    """Which group each voice's requests go to, with nothing else going on."""
    async with aiohttp.ClientSession(base) as session:
        found = {}
        for voice in VOICES:
            async with session.get("/version", headers={"X-Voice-Id": voice}) as reply:
                assert reply.status == 200
                found[voice] = reply.headers["X-Served-By"]
        return found
