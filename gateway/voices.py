"""The library of voices: a directory per voice with its codes, its text, and the recording they come from.

A voice is written into a directory beside it and renamed, so that it is there whole or not at all. Everything here
reads or writes files: call it from a thread.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import uuid
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from common.files import write_atomically
from common.messages import Array
from gateway.errors import ApiError, invalid
from gateway.fields import VOICE_ID
from gateway.model import ServedModel
from gateway.prompt import Reference

CODES, TEXT, AUDIO = "codes.safetensors", "text.txt", "audio"
_NAMED_IN_HINT = 10


class Voices:
    """Voices of one data directory, for the codec of one checkpoint. Safe to use from several threads."""

    def __init__(self, directory: Path, model: ServedModel, limit: int) -> None:
        self._directory = directory
        self._model = model
        self._limit = limit
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        for unfinished in directory.glob(".*"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def ids(self) -> list[str]:
        """Sorted."""
        return sorted(path.name for path in self._directory.iterdir() if _is_id(path.name) and path.is_dir())

    def load(self, voice: str) -> Reference:
        """The voice of a request.

        Raises:
            ApiError: 400: no such voice, or one that was made for another codec.
        """
        path = self._path(voice, "reference_id")
        try:
            return Reference((path / TEXT).read_text(encoding="utf-8"), self._read_codes(path / CODES))
        except FileNotFoundError:
            known = self.ids()
            more = f" and {len(known) - _NAMED_IN_HINT} more" if len(known) > _NAMED_IN_HINT else ""
            hint = f"known: {', '.join(known[:_NAMED_IN_HINT])}{more}" if known else "there are none yet"
            message = f"reference_id: no voice {voice!r}; {hint}"
            raise ApiError(400, "voice_not_found", message, "reference_id") from None

    def check_new(self, voice: str) -> None:
        """Whether a voice of this id may be added.

        Raises:
            ApiError: 400 for an id that can't be, 409 for one that is taken, or when there are too many voices.
        """
        if self._path(voice, "id").exists():
            raise ApiError(409, "voice_exists", f"id: there is a voice {voice!r} already", "id")
        if len(self.ids()) >= self._limit:
            raise ApiError(409, "too_many_voices", f"there are {self._limit} voices, and no more are allowed")

    def add(self, voice: str, text: str, codes: Array, audio: bytes) -> None:
        """Write a voice. ``codes``: int16 [10, frames]. ``audio``: the file they come from.

        Raises:
            ApiError: as :meth:`check_new`.
        """
        target = self._path(voice, "id")
        unfinished = self._directory / f".{uuid.uuid4().hex}"
        unfinished.mkdir()
        try:
            fingerprint = {"codec": self._model.codec_fingerprint}
            write_atomically(unfinished / CODES, save({"codes": np.ascontiguousarray(codes)}, fingerprint))
            write_atomically(unfinished / TEXT, text.encode())
            write_atomically(unfinished / AUDIO, audio)
            with self._lock:
                self.check_new(voice)
                os.rename(unfinished, target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def delete(self, voice: str) -> None:
        """Raises ApiError: 404 when there is no such voice."""
        path = self._path(voice, "reference_id")
        trash = self._directory / f".{uuid.uuid4().hex}"
        with self._lock:
            self._must_exist(path, "reference_id")
            os.rename(path, trash)
        shutil.rmtree(trash)

    def rename(self, old: str, new: str) -> None:
        """Raises ApiError: 400 for ids that can't be or are the same, 404 for no such voice, 409 for a taken one."""
        source, target = self._path(old, "old_reference_id"), self._path(new, "new_reference_id")
        if old == new:
            raise invalid("new_reference_id", "is the old one")
        with self._lock:
            self._must_exist(source, "old_reference_id")
            if target.exists():
                raise ApiError(409, "voice_exists", f"there is a voice {new!r} already", "new_reference_id")
            os.rename(source, target)

    def _path(self, voice: str, param: str) -> Path:
        if not _is_id(voice):
            raise invalid(param, "is not 1 to 255 of letters, digits, spaces, - and _")
        return self._directory / voice

    def _must_exist(self, path: Path, param: str) -> None:
        if not path.exists():
            raise ApiError(404, "voice_not_found", f"{param}: no voice {path.name!r}", param)

    def _read_codes(self, path: Path) -> Array:
        try:
            with safe_open(path, "numpy") as file:
                if (file.metadata() or {}).get("codec") != self._model.codec_fingerprint:
                    message = f"voice {path.parent.name!r} was made for another codec; add it anew"
                    raise ApiError(400, "voice_of_other_codec", message, "reference_id")
                codes: Array = file.get_tensor("codes")
        except SafetensorError as error:
            raise ApiError(500, "voice_unreadable", f"voice {path.parent.name!r} can't be read: {error}") from None
        return codes


def _is_id(name: str) -> bool:
    return re.fullmatch(VOICE_ID, name) is not None
