"""From a valid request to its stream, and from the stream to pieces of encoded sound: what all doors share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from aiohttp import web

from common.messages import Array, FinishReason, Submit
from gateway import body, fields, reference_audio
from gateway.engine import EngineError
from gateway.errors import ApiError, from_failure
from gateway.fields import SpeechRequest
from gateway.prompt import Reference, split_batches
from gateway.services import GATEWAY, Gateway
from gateway.session import Session
from gateway.sound import Encoder
from gateway.streams import Chunk, End, Stream


async def read_request(request: web.Request) -> SpeechRequest:
    """The speech request in a body.

    Raises:
        ApiError: naming what is wrong with it.
    """
    gateway = request.app[GATEWAY]
    values = await body.read_fields(request)
    if "references" in values:  # as base64, perhaps, and large
        speech = await asyncio.to_thread(fields.parse, values, gateway.model, gateway.settings)
    else:
        speech = fields.parse(values, gateway.model, gateway.settings)
    gateway.metrics.input_characters.inc(len(speech.text))
    return speech


async def start(
    gateway: Gateway,
    session: Session,
    speech: SpeechRequest,
    output: Literal["audio", "codes"],
    deadline: float | None = None,
) -> Stream:
    """Submit a request. ``deadline``: when the first frame must have come, by the clock of the event loop.

    Raises:
        ApiError: a voice or reference that can't be used, or the engine refused.
    """
    references = await _references(gateway, session, speech)
    batches = split_batches(speech.text, speech.chunk_length)
    turns = await asyncio.to_thread(gateway.model.prompts.build, batches, references)
    left = None if deadline is None else max(0.001, deadline - asyncio.get_running_loop().time())
    streaming = output == "codes" or speech.streaming
    lengths = [turn.shape[1] for turn in turns]
    submit = Submit(session.request, output, streaming, speech.sampling, speech.max_frames, lengths, left)
    try:
        session.stream = gateway.engine.submit(submit, np.concatenate(turns, axis=1))
    except EngineError as error:
        raise from_failure(error.failure) from None
    return session.stream


async def _references(gateway: Gateway, session: Session, speech: SpeechRequest) -> list[Reference]:
    if speech.reference_id is not None:
        return [await asyncio.to_thread(gateway.voices.load, speech.reference_id)]
    rate, seconds = gateway.model.sample_rate, gateway.settings.reference_seconds
    clips = [
        await asyncio.to_thread(reference_audio.decode, upload.audio, rate, seconds, f"references[{index}].audio")
        for index, upload in enumerate(speech.references)
    ]
    return [
        Reference(upload.text, await encode(gateway, f"{session.request}-{index}", clip))
        for index, (upload, clip) in enumerate(zip(speech.references, clips, strict=True))
    ]


async def encode(gateway: Gateway, request: str, samples: Array) -> Array:
    """Codes int16 [10, frames] of reference audio, float32 [n] at the codec's rate.

    Raises:
        ApiError: the engine refused or failed.
    """
    try:
        return await gateway.engine.encode(request, samples)
    except EngineError as error:
        raise from_failure(error.failure) from None


def check_end(end: End) -> None:
    """Whether a stream ended as a whole, with something in it.

    Raises:
        ApiError: it did not.
    """
    if end.failure is not None:
        raise from_failure(end.failure, end.reason)
    if end.reason == "timeout":
        raise deadline_exceeded()
    if end.reason not in ("stop", "length"):
        raise ApiError(500, end.reason, f"the request ended early: {end.reason}", reason=end.reason)
    if end.frames == 0:
        raise ApiError(500, "no_audio", "the model made no sound of this text", reason="error")


def deadline_exceeded() -> ApiError:
    message = "no sound within the time allowed; the server is busy"
    return ApiError(503, "deadline_exceeded", message, retry_after=5, reason="timeout")


class Piece(NamedTuple):
    """Encoded sound, never empty. ``samples`` went into it; ``frames`` of the stream are done with it."""

    data: bytes
    samples: int
    frames: int


class Spoken:
    """A stream as pieces of encoded sound."""

    def __init__(self, stream: Stream, encoder: Encoder, threads: Executor) -> None:
        self._end: End | None = None
        self._stream, self._encoder, self._threads = stream, encoder, threads
        self._samples = 0  # encoded, of which no bytes have come yet
        self._frames = 0

    @property
    def reason(self) -> FinishReason:
        """How the stream ended; after the last piece."""
        assert self._end is not None
        return self._end.reason

    async def next(self) -> Piece | None:
        """The next piece; None after the last.

        Raises:
            ApiError: the stream failed, or ended without any frame.
        """
        while self._end is None:
            item = await self._stream.next()
            data = await self._encode(item)
            if data:
                samples, self._samples = self._samples, 0
                return Piece(data, samples, self._frames)
            self._stream.read_up_to(self._frames)
        return None

    def sent(self, piece: Piece) -> None:
        """The client has this piece, so the engine may go on."""
        self._stream.read_up_to(piece.frames)

    async def _encode(self, item: Chunk | End) -> bytes:
        if isinstance(item, End):
            check_end(item)
            self._end = item
            return await self._run(self._encoder.flush)
        self._frames = item.first + item.frames
        self._samples += len(item.data)
        return await self._run(partial(self._encoder.encode, item.data))

    async def _run(self, call: Callable[[], bytes]) -> bytes:
        if self._encoder.slow:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return call()
