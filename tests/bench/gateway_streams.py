"""What many listeners at once cost the gateway, and how soon it answers others meanwhile.

    python -m tests.bench.gateway_streams                       # 200 listeners, PCM at 24 kHz
    python -m tests.bench.gateway_streams --format mp3 --chunk 2

Workers are cost-model executors that make all streams at 1.5 times the pace at which they play; everything else is
real. The gateway has a core to itself (its threads too), everything else has the others. --chunk: the scheduler sends
chunks of so many frames (of 50 ms) instead of those that playback asks for. Listeners are in this process, and another
asks for /healthz twenty times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import statistics
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import aiohttp
import psutil

from tests.integration.group import Group, costs, running

FRAME_SECONDS = 0.05  # of the bundled model
PACE = 1.5  # times as fast as it plays; slower, and the scheduler lets nobody in beside those who are heard
PAGES = 64  # of 16 positions for each stream, which may become longer than it does
POLL_SECONDS = 0.05
PATIENCE = aiohttp.ClientTimeout(total=300)


@dataclass(frozen=True)
class Report:
    """``whole``: streams that came to their end in order. ``dry``: those whose listener ran out of sound on the way."""

    streams: int
    whole: int
    dry: int
    seconds: float
    gateway_seconds: float  # of processor time
    answers: list[float]  # seconds to the answer of /healthz, sorted
    sizes: set[int]  # bytes of the streams
    pieces: int

    @property
    def gateway_share(self) -> float:
        """Of a core."""
        return self.gateway_seconds / self.seconds

    @property
    def answer_p99(self) -> float:
        return self.answers[int(0.99 * (len(self.answers) - 1))]

    def __str__(self) -> str:
        return (
            f"{self.whole} of {self.streams} streams whole, {self.dry} ran dry, in {self.seconds:.1f} s; "
            f"{self.pieces / self.seconds:.0f} pieces/s\n"
            f"gateway: {self.gateway_share:.0%} of a core; /healthz: median "
            f"{1000 * statistics.median(self.answers):.1f} ms, 99 % within {1000 * self.answer_p99:.1f} ms"
        )


@dataclass
class _Stream:
    size: int = 0
    pieces: int = 0
    whole: bool = False
    dry: bool = False


def measure(streams: int, seconds: float, format: str = "pcm", chunk: int = 0) -> Report:
    """Start a group, let ``streams`` listeners hear sound of so many seconds, and report."""
    frames = round(seconds / FRAME_SECONDS)
    with running(*_options(streams, frames, chunk)) as group, _apart(group) as gateway:
        asyncio.run(_listen(group.base, format, 4))  # warm up
        with _asking(group.base) as answers:
            began, spent = time.monotonic(), _processor_seconds(gateway)
            heard = asyncio.run(_listen(group.base, format, streams))
            took, spent = time.monotonic() - began, _processor_seconds(gateway) - spent
        return Report(
            streams,
            whole=sum(one.whole for one in heard),
            dry=sum(one.dry for one in heard),
            seconds=took,
            gateway_seconds=spent,
            answers=sorted(answers),
            sizes={one.size for one in heard},
            pieces=sum(one.pieces for one in heard),
        )


def _options(streams: int, frames: int, chunk: int) -> list[str]:
    settings: dict[str, object] = {
        "ar_worker__cost__frames": frames,
        "ar_worker__cost__per_sequence_ms": 0.0,
        "ar_worker__slots": streams,
        "ar_worker__pages": streams * PAGES,
        "vocoder_worker__slots": 2 * streams,
        "vocoder_worker__cost__per_frame_ms": 0.0,
        "scheduler__max_batch": streams,
        "scheduler__max_waiting": streams,
    }
    if chunk:
        settings |= {"scheduler__policy": "fixed", "scheduler__chunk": chunk}
    return costs(step_ms=1000 * FRAME_SECONDS / PACE, **settings)


@contextlib.contextmanager
def _apart(group: Group) -> Iterator[psutil.Process]:
    """The gateway has the first core, all others of the group and this process have the rest, if there is any."""
    gateway = psutil.Process(group.pid("gateway"))
    ours = os.sched_getaffinity(0)
    first, *others = sorted(ours)
    _pin(gateway.pid, {first})
    rest = set(others) or {first}
    for process in group.tree():
        if process.pid != gateway.pid:
            _pin(process.pid, rest)
    os.sched_setaffinity(0, rest)
    try:
        yield gateway
    finally:
        os.sched_setaffinity(0, ours)


def _pin(pid: int, cores: set[int]) -> None:
    for thread in psutil.Process(pid).threads():
        os.sched_setaffinity(thread.id, cores)


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _listen(base: str, format: str, count: int) -> list[_Stream]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as session:
        return list(await asyncio.gather(*(_one(session, base, format, number) for number in range(count))))


async def _one(session: aiohttp.ClientSession, base: str, format: str, number: int) -> _Stream:
    """Read a stream as it comes, and reckon when a listener who began with the first piece would have run dry."""
    stream, first = _Stream(), 0.0
    body = {"input": f"Listener {number}.", "voice": "alloy", "response_format": format}
    with contextlib.suppress(aiohttp.ClientError):
        async with session.post(f"{base}/v1/audio/speech", json=body) as reply:
            reply.raise_for_status()
            rate = 2 * int(reply.headers["X-Sample-Rate"]) if format == "pcm" else 0
            async for data in reply.content.iter_any():
                now = time.monotonic()
                first = first or now
                stream.dry |= rate > 0 and now - first > stream.size / rate
                stream.size += len(data)
                stream.pieces += 1
            stream.whole = True
    return stream


@contextlib.contextmanager
def _asking(base: str) -> Iterator[list[float]]:
    """How long answers of /healthz took; the list is filled when the block ends."""
    answers: list[float] = []
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_ask, args=(f"{base}/healthz", theirs))
    process.start()
    ours.recv()
    yield answers
    ours.send("enough")
    answers.extend(ours.recv())
    process.join()


def _ask(url: str, pipe: Connection) -> None:
    answers = []
    pipe.send("ready")
    while not pipe.poll(POLL_SECONDS):
        began = time.monotonic()
        with urllib.request.urlopen(url, timeout=30) as reply:
            reply.read()
        answers.append(time.monotonic() - began)
    pipe.send(answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0, help="of sound")
    parser.add_argument("--format", default="pcm")
    parser.add_argument("--chunk", type=int, default=0, help="frames; 0: as playback asks for")
    arguments = parser.parse_args()
    print(measure(arguments.streams, arguments.seconds, arguments.format, arguments.chunk))


if __name__ == "__main__":
    main()
