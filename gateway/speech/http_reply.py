"""Answers a speech request with sound over HTTP, streamed or in one piece."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from gateway.audio import Pipeline
from gateway.http import voice_header
from gateway.http.buffers import Spool
from gateway.http.response_stream import TRAILER, ResponseStream
from gateway.schema.fields import SpeechRequest
from gateway.services import ARRIVAL, GATEWAY, Gateway
from gateway.speech import encoded_stream
from gateway.speech.encoded_stream import EncodedStream
from gateway.speech.playout import play
from gateway.speech.session import Session


class Framing(Protocol):
    """Framing of sound in the body of a streamed reply."""

    def media_type(self, sound: str) -> str:
        """Media type of the body, given that of the sound."""

    def piece(self, data: bytes) -> bytes: ...

    def end(self, prompt_tokens: int, frames: int) -> bytes:
        """Bytes that follow the last piece."""


class Unframed:
    """Framing that adds nothing to the sound."""

    def media_type(self, sound: str) -> str:
        return sound

    def piece(self, data: bytes) -> bytes:
        return data

    def end(self, prompt_tokens: int, frames: int) -> bytes:
        return b""


async def answer(request: web.Request, api: str, wanted: SpeechRequest, framing: Framing) -> web.StreamResponse:
    """Answer a request; ``api`` names the endpoint in the metrics. A reply in one piece is never framed.

    Raises:
        ApiError: the request failed before its first sound, or at any time for a reply in one piece.
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


class _HttpSink:
    """A streamed response. Its status waits for the first sound; from then on an error breaks the connection."""

    def __init__(
        self, request: web.Request, wanted: SpeechRequest, pipeline: Pipeline, framing: Framing, patience: float
    ) -> None:
        headers = reply_headers(request.app[GATEWAY], wanted, pipeline.rate)
        media_type = framing.media_type(pipeline.media_type)
        self.response = web.StreamResponse(headers=headers | {"Content-Type": media_type})
        self._request, self._framing, self._patience = request, framing, patience
        self._stream: ResponseStream | None = None

    async def open(self) -> None:
        self._stream = await ResponseStream.open(self._request, self.response, self._patience)

    async def send(self, data: bytes) -> None:
        assert self._stream is not None
        await self._stream.send(self._framing.piece(data))

    async def finish(self, session: Session, frames: int) -> None:
        assert self._stream is not None
        await self._stream.send(self._framing.end(session.prompt_tokens, frames))
        await self._stream.finish(session.reason)


async def _stream(
    request: web.Request, session: Session, wanted: SpeechRequest, pipeline: Pipeline, framing: Framing
) -> web.StreamResponse:
    gateway, began = request.app[GATEWAY], request[ARRIVAL]
    sink = _HttpSink(request, wanted, pipeline, framing, gateway.settings.slow_client_timeout)
    deadline = began + gateway.settings.first_audio_deadline
    opening = encoded_stream.start(gateway, session, wanted, "audio", deadline)
    frames = await play(gateway, session, opening, pipeline, sink, began)
    await sink.finish(session, frames)
    return sink.response


async def _whole(
    request: web.Request, session: Session, wanted: SpeechRequest, pipeline: Pipeline
) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    stream = await encoded_stream.start(gateway, session, wanted, "audio")
    encoded = EncodedStream(stream, pipeline, gateway.encoders, session.timeline)
    with Spool(gateway.memory, gateway.disk, gateway.spool_dir) as rest:
        first, frames = await _gather(encoded, rest)
        first = pipeline.sealed(first)
        gateway.metrics.count_sound(pipeline.samples / pipeline.rate, len(first) + rest.size)
        ending = {"Content-Type": pipeline.media_type, TRAILER: encoded.reason, "X-Frames": str(frames)}
        response = web.StreamResponse(headers=reply_headers(gateway, wanted, pipeline.rate) | ending)
        response.content_length = len(first) + rest.size
        stream_out = await ResponseStream.open(request, response, gateway.settings.slow_client_timeout)
        await stream_out.send(first)
        async for block in rest.blocks():
            await stream_out.send(block)
        session.reason = encoded.reason
        await stream_out.finish(session.reason)
    return response


async def _gather(encoded: EncodedStream, rest: Spool) -> tuple[bytes, int]:
    """Read a stream to its end; returns its first piece and its frames, and writes all other pieces to ``rest``."""
    first, frames = b"", 0
    while (piece := await encoded.next()) is not None:
        if frames:
            await rest.write(piece.data)
        else:
            first = piece.data
        frames = piece.frames
        encoded.sent(piece)
    return first, frames


def reply_headers(gateway: Gateway, wanted: SpeechRequest, rate: int) -> dict[str, str]:
    """Build the headers of a reply with sound or codes; ``rate`` in samples per second."""
    headers = {"X-Seed": str(wanted.sampling.seed), "X-Sample-Rate": str(rate)}
    headers |= voice_header.of(encoded_stream.voices(gateway, wanted))
    return headers | ({"X-Ignored-Fields": ", ".join(wanted.ignored)} if wanted.ignored else {})
