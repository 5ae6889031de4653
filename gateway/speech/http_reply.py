"""A speech request answered with sound, streamed or in one piece: what the doors that speak share."""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiohttp import web

from gateway.audio import Pipeline
from gateway.http import voice_header
from gateway.http.response_stream import TRAILER, Outlet
from gateway.observe.metrics import Playback
from gateway.schema.fields import SpeechRequest
from gateway.services import ARRIVAL, GATEWAY, Gateway
from gateway.speech import encoded_stream
from gateway.speech.encoded_stream import Piece, Spoken
from gateway.speech.session import Session


class Framing(Protocol):
    """How pieces of sound lie in the body of a streamed reply."""

    def media_type(self, sound: str) -> str:
        """Of the body, given that of the sound."""

    def piece(self, data: bytes) -> bytes: ...

    def end(self, prompt_tokens: int, frames: int) -> bytes:
        """What follows the last piece."""


class Bare:
    """The sound and nothing else."""

    def media_type(self, sound: str) -> str:
        return sound

    def piece(self, data: bytes) -> bytes:
        return data

    def end(self, prompt_tokens: int, frames: int) -> bytes:
        return b""


async def answer(request: web.Request, api: str, wanted: SpeechRequest, framing: Framing) -> web.StreamResponse:
    """The reply to a request; ``api`` names the door in the metrics. A reply in one piece is never framed.

    Raises:
        ApiError: what went wrong before the first sound, or ever, in a reply in one piece.
    """
    gateway = request.app[GATEWAY]
    with Session(gateway, request, api, wanted.delivery.format) as session:
        pipeline = Pipeline(wanted.delivery, gateway.model.sample_rate)
        try:
            if wanted.streaming:
                return await _stream(request, session, wanted, pipeline, framing)
            return await _whole(request, session, wanted, pipeline)
        finally:
            gateway.metrics.not_finite.inc(pipeline.not_finite)


async def _stream(
    request: web.Request, session: Session, wanted: SpeechRequest, pipeline: Pipeline, framing: Framing
) -> web.StreamResponse:
    """The status waits for the first sound; from then on an error breaks the connection."""
    gateway = request.app[GATEWAY]
    deadline = request[ARRIVAL] + gateway.settings.first_audio_deadline
    try:
        async with asyncio.timeout_at(deadline):
            stream = await encoded_stream.start(gateway, session, wanted, "audio", deadline)
            spoken = Spoken(stream, pipeline, gateway.encoders, session.timeline)
            piece = await spoken.next()
    except TimeoutError:
        raise encoded_stream.deadline_exceeded() from None
    headers = reply_headers(gateway, wanted, pipeline.rate) | {"Content-Type": framing.media_type(pipeline.media_type)}
    response = web.StreamResponse(headers=headers)
    outlet = await Outlet.open(request, response, gateway.settings.slow_client_timeout)
    playback = Playback(gateway.metrics, request[ARRIVAL], pipeline.rate)
    whole = False
    try:
        frames = await _play(outlet, spoken, piece, framing, playback)
        whole = True
    finally:
        playback.ended(whole)
    await outlet.send(framing.end(session.prompt_tokens, frames))
    session.reason = spoken.reason
    await outlet.finish(session.reason)
    return response


async def _play(outlet: Outlet, spoken: Spoken, piece: Piece | None, framing: Framing, playback: Playback) -> int:
    """Send all pieces; the number of frames in them."""
    frames, clock = 0, asyncio.get_running_loop().time
    while piece is not None:
        frames = piece.frames
        ready = clock()
        spoken.timeline.lateness(playback.chunk(ready, piece.samples, len(piece.data)))
        await outlet.send(framing.piece(piece.data))
        playback.sent(clock() - ready)
        spoken.sent(piece)
        piece = await spoken.next()
    return frames


async def _whole(
    request: web.Request, session: Session, wanted: SpeechRequest, pipeline: Pipeline
) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    stream = await encoded_stream.start(gateway, session, wanted, "audio")
    spoken = Spoken(stream, pipeline, gateway.encoders, session.timeline)
    pieces: list[Piece] = []
    while (piece := await spoken.next()) is not None:
        spoken.sent(piece)
        pieces.append(piece)
    data = [pipeline.sealed(pieces[0].data), *(piece.data for piece in pieces[1:])]
    content = await asyncio.to_thread(b"".join, data)  # it may be long
    gateway.metrics.count_sound(pipeline.samples / pipeline.rate, len(content))
    ending = {"Content-Type": pipeline.media_type, TRAILER: spoken.reason, "X-Frames": str(pieces[-1].frames)}
    response = web.StreamResponse(headers=reply_headers(gateway, wanted, pipeline.rate) | ending)
    response.content_length = len(content)
    outlet = await Outlet.open(request, response, gateway.settings.slow_client_timeout)
    await outlet.send(content)
    session.reason = spoken.reason
    await outlet.finish(session.reason)
    return response


def reply_headers(gateway: Gateway, wanted: SpeechRequest, rate: int) -> dict[str, str]:
    """Headers of every reply with sound or codes; ``rate`` in samples per second."""
    headers = {"X-Seed": str(wanted.sampling.seed), "X-Sample-Rate": str(rate)}
    headers |= voice_header.of(encoded_stream.voices(gateway, wanted))
    return headers | ({"X-Ignored-Fields": ", ".join(wanted.ignored)} if wanted.ignored else {})
