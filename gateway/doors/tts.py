"""``POST /v1/tts``: text in, sound out, streamed or in one piece."""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway import sound, speech
from gateway.fields import SpeechRequest
from gateway.metrics import Playback
from gateway.outlet import TRAILER, Outlet
from gateway.services import ARRIVAL, GATEWAY, Gateway
from gateway.session import Session
from gateway.sound import Encoder
from gateway.speech import Piece, Spoken

routes = web.RouteTableDef()


@routes.post("/v1/tts")
async def tts(request: web.Request) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    wanted = await speech.read_request(request)
    encoder = sound.encoder(wanted.format, gateway.model.sample_rate, wanted.mp3_bitrate)
    with Session(gateway, "tts", wanted.format, request[ARRIVAL]) as session:
        answer = _stream if wanted.streaming else _whole
        return await answer(request, session, wanted, encoder)


async def _stream(
    request: web.Request, session: Session, wanted: SpeechRequest, encoder: Encoder
) -> web.StreamResponse:
    """The status waits for the first sound; from then on an error breaks the connection."""
    gateway = request.app[GATEWAY]
    deadline = request[ARRIVAL] + gateway.settings.first_audio_deadline
    try:
        async with asyncio.timeout_at(deadline):
            spoken = Spoken(await speech.start(gateway, session, wanted, "audio", deadline), encoder, gateway.encoders)
            piece = await spoken.next()
    except TimeoutError:
        raise speech.deadline_exceeded() from None
    response = web.StreamResponse(headers=reply_headers(gateway, wanted) | {"Content-Type": encoder.media_type})
    outlet = await Outlet.open(request, response, gateway.settings.slow_client_timeout)
    playback = Playback(gateway.metrics, request[ARRIVAL], gateway.model.sample_rate)
    try:
        await _play(outlet, spoken, piece, encoder.header(None), playback)
    finally:
        playback.ended()
    session.reason = spoken.reason
    await outlet.finish(session.reason)
    return response


async def _play(outlet: Outlet, spoken: Spoken, piece: Piece | None, head: bytes, playback: Playback) -> None:
    """Send the pieces, the first with ``head`` in front of it in one write."""
    while piece is not None:
        playback.chunk(asyncio.get_running_loop().time(), piece.samples, len(piece.data))
        await outlet.send(head + piece.data)
        spoken.sent(piece)
        head = b""
        piece = await spoken.next()


async def _whole(request: web.Request, session: Session, wanted: SpeechRequest, encoder: Encoder) -> web.StreamResponse:
    gateway = request.app[GATEWAY]
    spoken = Spoken(await speech.start(gateway, session, wanted, "audio"), encoder, gateway.encoders)
    pieces: list[Piece] = []
    while (piece := await spoken.next()) is not None:
        spoken.sent(piece)
        pieces.append(piece)
    samples = sum(piece.samples for piece in pieces)
    data = b"".join(piece.data for piece in pieces)
    gateway.metrics.count_sound(samples / gateway.model.sample_rate, len(data))
    content = encoder.header(samples) + data
    ending = {"Content-Type": encoder.media_type, TRAILER: spoken.reason, "X-Frames": str(pieces[-1].frames)}
    response = web.StreamResponse(headers=reply_headers(gateway, wanted) | ending)
    response.content_length = len(content)
    outlet = await Outlet.open(request, response, gateway.settings.slow_client_timeout)
    await outlet.send(content)
    session.reason = spoken.reason
    await outlet.finish(session.reason)
    return response


def reply_headers(gateway: Gateway, wanted: SpeechRequest) -> dict[str, str]:
    """Headers of every reply with sound or codes."""
    headers = {"X-Seed": str(wanted.sampling.seed), "X-Sample-Rate": str(gateway.model.sample_rate)}
    return headers | ({"X-Ignored-Fields": ", ".join(wanted.ignored)} if wanted.ignored else {})
