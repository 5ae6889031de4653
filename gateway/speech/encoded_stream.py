"""Encoded streams: from a valid request to its stream, and from the stream to pieces of encoded sound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Literal, NamedTuple

from aiohttp import web

from common.messages import FinishReason
from gateway.access.accounts import Client
from gateway.access.auth import CLIENT
from gateway.audio import Pipeline
from gateway.checkpoint.prompt import Reference, of_speaker
from gateway.engine.streams import Chunk, End, Pause, Source
from gateway.http import body, forms
from gateway.http.errors import ApiError, from_failure
from gateway.http.offload import LONG_TO_TOKENISE, offload
from gateway.observe.timeline import Timeline
from gateway.schema import fields
from gateway.schema.fields import FISH, Dialect, SpeechRequest
from gateway.services import GATEWAY, Gateway
from gateway.speech.conversation import Conversation
from gateway.speech.planner import Reply
from gateway.speech.session import Session
from gateway.speech.turn_script import TurnScript


async def read_request(request: web.Request) -> SpeechRequest:
    """Read the speech request in a body.

    Raises:
        ApiError: naming what is wrong with it.
    """
    if request.content_type == forms.MULTIPART:
        values = forms.speech_fields(await forms.read(request, forms.MULTIPART))
    else:
        values = await body.read_fields(request)
    return await accept(request, values, FISH)


async def accept(request: web.Request, values: dict[Any, Any], dialect: Dialect) -> SpeechRequest:
    """Validate the fields of a speech request and count it.

    Raises:
        ApiError: naming what is wrong with it.
    """
    gateway = request.app[GATEWAY]
    large = "references" in values  # perhaps as base64
    speech = await offload(large, fields.parse, values, gateway.model, gateway.settings, dialect)
    gateway.metrics.input_characters.inc(len(speech.text))
    request[CLIENT].count_text(len(speech.text))
    return speech


async def start(
    gateway: Gateway,
    session: Session,
    speech: SpeechRequest,
    output: Literal["audio", "codes"],
    deadline: float | None = None,
) -> Conversation:
    """Submit a request. ``deadline``: for the first frame, by the clock of the event loop.

    Raises:
        ApiError: a text, voice or reference that can't be used, or the engine refused.
    """
    script = TurnScript(gateway.model, gateway.settings, speech.chunk_length, speech.normalize)
    turns = await offload(len(speech.text) > LONG_TO_TOKENISE, script.whole, speech.text)
    conversation = converse(
        gateway, session, speech, await references(gateway, session.client, speech), output, deadline
    )
    conversation.say(turns)
    conversation.finish()
    await conversation.advance()
    return conversation


def converse(
    gateway: Gateway,
    session: Session,
    speech: SpeechRequest,
    references: list[Reference],
    output: Literal["audio", "codes"],
    deadline: float | None = None,
) -> Conversation:
    """Open a conversation in the voice of the references, without text so far.

    ``deadline``: as in :func:`start`.
    """
    left = None if deadline is None else max(0.001, deadline - asyncio.get_running_loop().time())
    reply = Reply(
        request=session.request,
        client=session.client.name,
        output=output,
        streaming=output == "codes" or speech.streaming,
        sampling=speech.sampling,
        max_new_tokens=speech.max_new_tokens,
        references=references,
        priority=speech.priority,
        deadline=left,
    )
    speakers = None if speech.clips else voices(gateway, speech)
    session.timeline.asked(len(speech.text), speech.streaming, speakers)
    conversation = session.stream = Conversation(gateway.engine, gateway.model.prompts, reply, gateway.bounds)
    return conversation


def voices(gateway: Gateway, speech: SpeechRequest) -> list[str]:
    """Return the voice ids, one per speaker; none for recordings in the request or the model's own choice."""
    return speech.voices or ([gateway.voices.default] if gateway.voices.default and not speech.clips else [])


async def references(gateway: Gateway, client: Client, speech: SpeechRequest) -> list[Reference]:
    """Return the references of the speakers, in their order.

    Raises:
        ApiError: a voice or recording that can't be used.
    """
    found: list[Reference] = []
    for speaker, voice in enumerate(voices(gateway, speech)):
        found += [of_speaker(recording, speaker) for recording in await gateway.voices.references(voice, client.viewer)]
    if speech.clips:
        await gateway.voices.check_context([(clip.audio, clip.text) for clip in speech.clips], "references")
    for clip in speech.clips:
        codes = await gateway.voices.clip(clip.audio, f"{clip.param}.audio")
        found.append(of_speaker(Reference(clip.text, codes), clip.speaker))
    return found


def check_end(end: End) -> None:
    """Check that a stream ended completely and with sound.

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
    """Encoded sound, never empty."""

    data: bytes
    samples: int  # at the rate of the bytes
    frames: int  # of the stream up to and including this piece
    rested: float = 0.0  # seconds for which the stream had no text to speak before this piece


class EncodedStream:
    """Turns a stream of samples into pieces of encoded sound."""

    def __init__(self, stream: Source, pipeline: Pipeline, threads: Executor, timeline: Timeline) -> None:
        self.timeline = timeline
        self._end: End | None = None
        self._stream, self._pipeline, self._threads = stream, pipeline, threads
        self._samples = 0  # in the pieces so far
        self._frames = 0
        self._told = 0  # frames in the pieces so far
        self._resting_since: float | None = None  # all text is spoken, and more may come

    @property
    def reason(self) -> FinishReason:
        """Finish reason of the stream; valid after the last piece."""
        assert self._end is not None
        return self._end.reason

    async def next(self) -> Piece | None:
        """Return the next piece; None after the last.

        Raises:
            ApiError: the stream failed, or ended without any frame.
        """
        while self._end is None:
            item = await self._stream.next()
            rested = self._rested(item)
            data = await self._encode(item)
            if data:
                samples, self._samples = self._pipeline.samples - self._samples, self._pipeline.samples
                self.timeline.chunk(self._frames - self._told, len(data), samples / self._pipeline.rate)
                self._told = self._frames
                return Piece(data, samples, self._frames, rested)
            self._stream.read_up_to(self._frames)
        return None

    def _rested(self, item: Chunk | Pause | End) -> float:
        """Return the seconds of the rest that ends with ``item``; 0 if none does."""
        now, since = asyncio.get_running_loop().time(), self._resting_since
        self._resting_since = (now if since is None else since) if isinstance(item, Pause) else None
        return 0.0 if since is None or isinstance(item, Pause) else now - since

    def sent(self, piece: Piece) -> None:
        """Give the engine credit: the client has this piece."""
        self.timeline.sent()
        self._stream.read_up_to(piece.frames)

    async def _encode(self, item: Chunk | Pause | End) -> bytes:
        if isinstance(item, Pause):
            return await self._run(self._pipeline.pause, 0)
        if isinstance(item, End):
            check_end(item)
            self._end = item
            return await self._run(self._pipeline.flush, 0)
        self._frames = item.first + item.frames
        return await self._run(partial(self._pipeline.encode, item.data), len(item.data))

    async def _run(self, call: Callable[[], bytes], samples: int) -> bytes:
        if self._pipeline.heavy(samples):
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return call()
