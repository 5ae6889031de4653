"""Draw how a reply arrived: its waveform by chunk, and how much sound the listener had in hand.

    python -m tests.bench.stream_picture --out docs/images/stream.png

starts a group with the bundled model, or asks a running server (--server http://127.0.0.1:8080).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from pathlib import Path
from typing import NamedTuple

import aiohttp
import numpy as np

from tests.integration.group import running

TEXT = "The tide comes in, and a thousand small fish turn as one."


class Stream(NamedTuple):
    """Arrival times of the chunks since the request, and the samples, 16-bit, of each."""

    rate: int
    arrivals: list[float]
    chunks: list[np.ndarray]


async def listen(server: str, text: str) -> Stream:
    """Ask for a stream as a WAV and note when each of its pieces arrived."""
    body = {"text": text, "format": "wav", "seed": 7}
    arrivals, chunks, header = [], [], b""
    began = time.monotonic()
    async with aiohttp.ClientSession() as session, session.post(f"{server}/v1/tts", json=body) as reply:
        reply.raise_for_status()
        rate = int(reply.headers["X-Sample-Rate"])
        async for data, _ in reply.content.iter_chunks():
            if not header:
                header, data = data[:44], data[44:]
            if data:
                arrivals.append(time.monotonic() - began)
                chunks.append(np.frombuffer(data[: len(data) // 2 * 2], "<i2"))
    return Stream(rate, arrivals, chunks)


def draw(stream: Stream, out: Path) -> None:
    """The picture: sound above, what the listener has in hand below."""
    from matplotlib import pyplot

    figure, (sound, reserve) = pyplot.subplots(2, 1, figsize=(9, 4), sharex=True, height_ratios=[3, 2])
    start, first = 0.0, stream.arrivals[0]
    for index, chunk in enumerate(stream.chunks):
        seconds = first + start + np.arange(len(chunk)) / stream.rate
        sound.plot(seconds, chunk / 32768, linewidth=0.4, color=f"C{index % 2}")
        start += len(chunk) / stream.rate
    delivered = np.cumsum([len(chunk) / stream.rate for chunk in stream.chunks])
    times = np.linspace(first, first + start, 800)
    got = np.array([delivered[np.searchsorted(stream.arrivals, now, side="right") - 1] for now in times])
    reserve.fill_between(times, got - (times - first), step="post", alpha=0.35)
    reserve.plot(stream.arrivals, np.zeros(len(stream.arrivals)), "|", color="black", markersize=9)
    sound.set_ylabel("sound")
    sound.set_yticks([])
    reserve.set_ylabel("in hand (s)")
    reserve.set_xlabel(f"seconds since the request; first sound after {1000 * first:.0f} ms, arrivals marked")
    for axes in (sound, reserve):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", help="address of a running server; without it a group is started")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--out", type=Path, default=Path("stream.png"))
    options = parser.parse_args()
    group = contextlib.nullcontext() if options.server else running()
    with group as started:
        server = options.server or started.base  # type: ignore[union-attr]
        asyncio.run(listen(server, "Warm up."))
        draw(asyncio.run(listen(server, options.text)), options.out)


if __name__ == "__main__":
    main()
