"""Playout of a reply over any transport: first sound within the deadline, then piece after piece, with metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from gateway.audio import Pipeline
from gateway.engine.streams import Source
from gateway.observe.metrics import Playback
from gateway.services import Gateway
from gateway.speech.encoded_stream import EncodedStream, Piece, deadline_exceeded
from gateway.speech.session import Session


class Sink(Protocol):
    """A client, over any transport."""

    async def open(self) -> None:
        """Begin the reply. Called once, when the first sound is there."""

    async def send(self, data: bytes) -> None:
        """Return when the transport has taken all of ``data``.

        Raises:
            SlowClientError: no progress for too long.
            ConnectionError: the client has gone.
        """


async def play(
    gateway: Gateway, session: Session, opening: Awaitable[Source], pipeline: Pipeline, sink: Sink, began: float
) -> int:
    """Send a stream to its end; returns its frames and sets the reason of the session.

    ``opening`` submits the request. ``began`` is when the client began to wait for sound, by the clock of the event
    loop; time to first audio and the deadline for it count from there.

    Raises:
        ApiError: the stream failed, or had no sound within the deadline.
        SlowClientError, ConnectionError: see :class:`Sink`.
    """
    try:
        async with asyncio.timeout_at(began + gateway.settings.first_audio_deadline):
            stream = await opening
            encoded = EncodedStream(stream, pipeline, gateway.encoders, session.timeline)
            piece = await encoded.next()
    except TimeoutError:
        raise deadline_exceeded() from None
    await sink.open()
    playback = Playback(gateway.metrics, began, pipeline.rate)
    complete = False
    try:
        frames = await _send_all(encoded, piece, sink, playback)
        complete = True
    finally:
        playback.ended(complete)
    session.reason = encoded.reason
    return frames


async def _send_all(encoded: EncodedStream, piece: Piece | None, sink: Sink, playback: Playback) -> int:
    """Returns the number of frames sent."""
    frames, clock = 0, asyncio.get_running_loop().time
    while piece is not None:
        frames = piece.frames
        ready = clock()
        encoded.timeline.lateness(playback.chunk(ready, piece.samples, len(piece.data), piece.rested))
        await sink.send(piece.data)
        playback.sent(clock() - ready)
        encoded.sent(piece)
        piece = await encoded.next()
    return frames
