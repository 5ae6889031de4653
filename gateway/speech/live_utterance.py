"""A live utterance: text between ``start`` and ``finish``, spoken sentence by sentence as soon as each is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.access.auth import CLIENT
from gateway.audio import Pipeline
from gateway.checkpoint.prompt import Reference
from gateway.errors import SlowClientError
from gateway.http.errors import ApiError
from gateway.http.offload import LONG_TO_SPLIT, offload
from gateway.observe.timeline import Timeline
from gateway.schema.fields import SpeechRequest
from gateway.services import Gateway
from gateway.speech import encoded_stream
from gateway.speech.conversation import Conversation
from gateway.speech.playout import play
from gateway.speech.session import Session
from gateway.speech.turn_script import TurnScript


class Utterance:
    """One utterance. Feed it with :meth:`say`, :meth:`flush` and :meth:`stop` while :meth:`speak` runs in its own task.

    ``send`` takes the bytes of one continuous encoded stream.
    """

    def __init__(
        self, gateway: Gateway, request: web.Request, wanted: SpeechRequest, send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        self._gateway, self._request, self._wanted, self._send = gateway, request, wanted, send
        self._client = request[CLIENT]
        self._timeline: Timeline | None = None  # once it speaks
        self._characters = 0
        self._script = TurnScript(gateway.model, gateway.settings, wanted.chunk_length, wanted.normalize)
        self._conversation: Conversation | None = None
        self._turns: list[str] = []  # said before the conversation began
        self._stopped = False
        self._begin = asyncio.Event()  # there is something to say, or there never will be

    async def say(self, text: str) -> None:
        """Add text.

        Raises:
            ApiError: too much of it waits to be spoken, or it holds a reserved token.
        """
        limit, waiting = self._gateway.settings.max_text_length, self._waiting + len(text)
        if waiting > limit:
            message = f"{waiting} characters wait to be spoken, more than {limit}"
            raise ApiError(413, "text_buffer_full", message, "text")
        self._gateway.metrics.input_characters.inc(len(text))
        self._client.count_text(len(text))
        self._characters += len(text)
        if self._timeline is not None:
            self._timeline.characters = self._characters
        self._add(await offload(len(text) > LONG_TO_SPLIT, self._script.add, text))

    async def flush(self) -> None:
        """Speak the text so far without waiting for the end of the sentence.

        Raises:
            ApiError: it holds a reserved token.
        """
        self._add(self._script.flush())

    async def stop(self) -> None:
        """End the text.

        Raises:
            ApiError: what was left holds a reserved token.
        """
        self._add(self._script.flush())
        self._stopped = True
        self._begin.set()
        if self._conversation is not None:
            self._conversation.finish()

    async def speak(self) -> None:
        """Run until all text is spoken and sent.

        Raises:
            ApiError: it could not be.
            ConnectionError: the client has gone.
            SlowClientError: it has read nothing for too long.
        """
        gateway, loop = self._gateway, asyncio.get_running_loop()
        pipeline = Pipeline(self._wanted.delivery, gateway.model.sample_rate)
        with (
            self._client.admitted(),
            Session(gateway, self._request, "live", self._wanted.delivery.format, loop.time()) as session,
        ):
            references = await encoded_stream.references(gateway, self._client, self._wanted)
            await self._begin.wait()
            try:
                if self._turns:
                    began = loop.time()
                    await play(gateway, session, self._open(session, references, began), pipeline, self, began)
                else:
                    session.reason = "stop"
            finally:
                gateway.metrics.not_finite.inc(pipeline.not_finite)

    async def _open(self, session: Session, references: list[Reference], began: float) -> Conversation:
        """Begin the conversation with the text so far."""
        gateway = self._gateway
        deadline = began + gateway.settings.first_audio_deadline
        conversation = encoded_stream.converse(gateway, session, self._wanted, references, "audio", deadline)
        self._timeline, session.timeline.begun = session.timeline, began
        session.timeline.characters = self._characters
        conversation.say(self._turns)
        if self._stopped:
            conversation.finish()
        self._conversation = conversation
        return conversation

    async def open(self) -> None:
        """Nothing to do before the first sound; see :class:`gateway.speech.playout.Sink`."""

    async def send(self, data: bytes) -> None:
        """Send to the client; see :class:`gateway.speech.playout.Sink`."""
        try:
            async with asyncio.timeout(self._gateway.settings.slow_client_timeout):
                await self._send(data)
        except TimeoutError:
            raise SlowClientError from None

    @property
    def _waiting(self) -> int:
        """Characters that are not with the engine yet."""
        said = sum(map(len, self._turns)) if self._conversation is None else self._conversation.pending
        return said + self._script.pending

    def _add(self, turns: list[str]) -> None:
        if not turns:
            return
        if self._conversation is not None:
            self._conversation.say(turns)
        else:
            self._turns.extend(turns)
            self._begin.set()
