"""Voice service: finds voices, encodes recordings when needed, and returns references for prompts."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cachetools import LRUCache

from common.config import Gateway as Settings
from common.messages import Array
from gateway.audio import reference_audio
from gateway.audio.reference_audio import AudioError
from gateway.checkpoint.prompt import Reference
from gateway.checkpoint.served_model import ServedModel
from gateway.engine.client import Engine
from gateway.errors import RequestError
from gateway.observe.metrics import GatewayMetrics
from gateway.voices.catalogue import Voice
from gateway.voices.clips import Clips
from gateway.voices.codes import CodesError
from gateway.voices.flights import SingleFlight
from gateway.voices.library import Details, Library, Upload
from gateway.voices.viewer import ADMIN, Viewer

log = logging.getLogger(__name__)

IN_MEMORY = 256  # voices whose references are remembered
DECODERS = 2  # threads that read recordings: each may hold a minute of sound in memory


class _Known(NamedTuple):
    """A voice and its references."""

    voice: Voice
    references: list[Reference]


class Voices:
    """The voice library and the clip cache, with an engine that encodes."""

    def __init__(
        self, directory: Path, model: ServedModel, engine: Engine, settings: Settings, metrics: GatewayMetrics
    ) -> None:
        """Raises OSError: the library can't be used."""
        self.library = Library(directory, model, settings.max_voices, settings.max_voice_bytes)
        self.default = model.voices.default
        self._model = model
        self._rate, self._seconds = model.sample_rate, settings.reference_seconds
        self._engine, self._metrics = engine, metrics
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="recordings")
        self._clips = Clips(self._encode, settings.reference_cache_bytes, metrics)
        self._renewals: SingleFlight[str, list[Array]] = SingleFlight()
        self._references: LRUCache[str, _Known] = LRUCache(IN_MEMORY)  # by voice
        self._changes = 0  # of the library, of which these know
        self._measure(self.library.totals())

    async def references(self, voice: str, viewer: Viewer = ADMIN, param: str = "reference_id") -> list[Reference]:
        """Return the recordings of a voice in their order.

        Raises:
            RequestError: no such voice for this client, or its codes are of another codec and can't be made anew.
        """
        changes = self.library.changes
        if changes != self._changes:
            self._references.clear()
            self._changes = changes
        known = self._references.get(voice)
        if known is not None and viewer.sees(known.voice):
            return known.references
        found = await asyncio.to_thread(self._find, voice, viewer, param)
        references = await self._read(found)
        if changes == self.library.changes:
            self._references[voice] = _Known(found, references)
        return references

    async def _read(self, found: Voice) -> list[Reference]:
        try:
            codes = await asyncio.to_thread(self.library.read_codes, found)
        except CodesError as error:
            log.info("encoding a voice anew: %s", error)
            codes = await self._renewals.run(found.folder, lambda: self._renew(found))
        texts = [recording.text for recording in found.recordings]
        return [Reference(text, array) for text, array in zip(texts, codes, strict=True)]

    def _find(self, voice: str, viewer: Viewer, param: str) -> Voice:
        """Find the voice that a field names; a missing one makes the field invalid."""
        try:
            return self.library.find(voice, param, viewer)
        except RequestError as error:
            raise RequestError("invalid", error.code, error.message, error.param) from None

    async def check_context(self, recordings: list[tuple[bytes, str]], param: str) -> None:
        """Check that recordings with their transcripts fit into the context, before any is encoded.

        Durations are those of the headers.

        Raises:
            RequestError: they don't, naming ``param``.
        """
        text = "\n".join(text for _, text in recordings)
        loop, model = asyncio.get_running_loop(), self._model
        needed = await asyncio.to_thread(model.prompts.tokens, text)
        for audio, _ in recordings:
            seconds = await loop.run_in_executor(self._decoders, reference_audio.header_seconds, audio)
            needed += math.ceil(seconds * model.frame_rate)
        if needed >= model.context:
            message = f"{param}: recordings and transcripts need {needed} of {model.context} positions"
            raise RequestError("invalid", "context_length_exceeded", message, param)

    async def clip(self, audio: bytes, param: str) -> Array:
        """Return the codes of a recording in a request, int16 [10, frames], read-only.

        Raises:
            RequestError: not audio that can be used (naming ``param``), or the engine refused or failed.
        """
        try:
            return await self._clips.codes(audio)
        except AudioError as error:
            raise error.named(param) from None

    async def add(self, voice: str, details: Details, recordings: list[tuple[bytes, str]], param: str) -> Voice:
        """Add a voice from recordings and transcripts. ``param``: the recordings' name in errors.

        Raises:
            RequestError: a bad or taken id, audio that can't be used, a full library, or the engine refused.
        """
        await asyncio.to_thread(self.library.check_new, voice)
        await self.check_context(recordings, param)
        uploads = [Upload(audio, text, await self.clip(audio, param)) for audio, text in recordings]
        added = await asyncio.to_thread(self.library.add, voice, details, uploads)
        self._measure(await asyncio.to_thread(self.library.totals))
        return added

    async def delete(self, voice: str, viewer: Viewer = ADMIN, param: str = "reference_id") -> None:
        """Delete a voice and its entries in caches. Raises RequestError: as :meth:`Library.delete`."""
        deleted = await asyncio.to_thread(self.library.delete, voice, param, viewer)
        for recording in deleted.recordings:
            self._clips.forget(recording.digest)
        self._measure(await asyncio.to_thread(self.library.totals))

    def close(self) -> None:
        self._decoders.shutdown(wait=False, cancel_futures=True)
        self.library.close()

    async def _renew(self, voice: Voice) -> list[Array]:
        recordings = await asyncio.to_thread(self.library.read_audio, voice)
        codes = [await self.clip(audio, "reference_id") for audio in recordings]
        await asyncio.to_thread(self.library.write_codes, voice, codes)
        return codes

    async def _encode(self, audio: bytes) -> Array:
        samples = await self._decode(audio)
        return await self._engine.encode(uuid.uuid4().hex, samples)

    async def _decode(self, audio: bytes) -> Array:
        decode = partial(reference_audio.decode, audio, self._rate, self._seconds)
        return await asyncio.get_running_loop().run_in_executor(self._decoders, decode)

    def _measure(self, totals: tuple[int, int]) -> None:
        self._metrics.voices.set(totals[0])
        self._metrics.voice_bytes.set(totals[1])
