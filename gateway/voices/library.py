"""Voice library: a catalogue, and for each voice a folder with its recordings and their codes.

A folder is written first and its row last, a row is deleted first and its folder last: so a crash leaves at most a
folder that no row names, which is removed at the next start. Folders have names of their own, so that renaming a voice
moves nothing.
Everything here reads or writes files: call it from a thread. One gateway per library.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import msgspec

from common.files import write_atomically
from common.messages import Array
from gateway.checkpoint.prompt import Reference
from gateway.checkpoint.served_model import ServedModel
from gateway.checkpoint.voice_ids import check_id, is_id
from gateway.errors import InvalidFieldError, RequestError
from gateway.voices import codes as codes_file
from gateway.voices.catalogue import Catalogue, Recording, Visibility, Voice, check_room, taken
from gateway.voices.clips import digest
from gateway.voices.disk import writing
from gateway.voices.viewer import ADMIN, Viewer

log = logging.getLogger(__name__)

CATALOGUE, FOLDERS, CODES = "catalogue.sqlite", "files", "codes.safetensors"
_NAMED_IN_HINT = 10
_CHECKPOINT = "checkpoint"


class Upload(NamedTuple):
    """A recording of a new voice: file, transcript, and codes, int16 [10, frames]."""

    audio: bytes
    text: str
    codes: Array


class Details(NamedTuple):
    """Name and description of a new voice."""

    title: str
    description: str = ""
    visibility: Visibility = "private"
    tags: tuple[str, ...] = ()
    owner: str = ""


class Library:
    """Voices of a data directory, and the checkpoint's, which are read-only.

    A voice of the library hides one of the checkpoint with the same id. Safe to use from several threads.
    ``changes`` counts what was changed, so that others can tell whether what they remember still holds.
    """

    def __init__(self, directory: Path, model: ServedModel, most: int, most_bytes: int) -> None:
        """Open the library and remove the remains of a crash.

        Raises:
            OSError: it can't be used.
        """
        self.changes = 0
        self._model, self._most, self._most_bytes = model, most, most_bytes
        self._folders = directory / FOLDERS
        self._folders.mkdir(parents=True, exist_ok=True)
        self._catalogue = Catalogue(directory / CATALOGUE)
        self._bundled = {
            name: _bundled(name, reference, model.frame_rate) for name, reference in model.voices.voices.items()
        }
        self._repair()

    def ids(self, viewer: Viewer = ADMIN) -> list[str]:
        """Return the ids that a client's listings contain, sorted."""
        return [voice.id for voice in self.voices(viewer)]

    def voices(self, viewer: Viewer = ADMIN) -> list[Voice]:
        """Return the voices that a client's listings contain, by id."""
        own = {voice.id: voice for voice in self._catalogue.all() if viewer.lists(voice)}
        return [voice for _, voice in sorted((self._bundled | own).items())]

    def totals(self) -> tuple[int, int]:
        """Return the number of voices, without the checkpoint's, and the bytes of their files."""
        return self._catalogue.totals()

    def exists(self, voice: str, viewer: Viewer = ADMIN) -> bool:
        """Return whether a client can use a voice of this id."""
        return is_id(voice) and self._visible(voice, viewer) is not None

    def find(self, voice: str, param: str, viewer: Viewer = ADMIN) -> Voice:
        """Return a voice that a client can use.

        Raises:
            RequestError: not an id, or no such voice for this client.
        """
        check_id(voice, param)
        found = self._visible(voice, viewer)
        if found is None:
            message = f"{param}: no voice {voice!r}; {self._hint(voice, viewer)}"
            raise RequestError("not_found", "voice_not_found", message, param)
        return found

    def check_new(self, voice: str) -> None:
        """Check that a voice of this id may be added.

        Raises:
            RequestError: not an id, an id that is taken, or the library is full.
        """
        check_id(voice, "id")
        self._check_free(voice, "id")
        count, size = self._catalogue.totals()
        check_room(count + 1, size, self._most, self._most_bytes)

    def add(self, voice: str, details: Details, uploads: list[Upload]) -> Voice:
        """Write a voice.

        Raises:
            RequestError: as :meth:`check_new`, or the disk is full or can't be written.
        """
        folder = self._folders / uuid.uuid4().hex
        with writing(self._folders):
            try:
                folder.mkdir()
                size = self._write(folder, uploads)
                new = self._row(voice, details, folder.name, size, uploads)
                self._check_free(voice, "id")
                self._catalogue.insert(new, self._most, self._most_bytes)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        self.changes += 1
        return new

    def rename(self, old: str, new: str, viewer: Viewer = ADMIN) -> Voice:
        """Give a voice another id. Raises RequestError: as :meth:`delete`, and for the same id or one that is taken."""
        voice = self._changeable(old, "old_reference_id", viewer)
        check_id(new, "new_reference_id")
        if old == new:
            raise InvalidFieldError("new_reference_id", "is the old one")
        if old.lower() != new.lower():
            self._check_free(new, "new_reference_id")
        title = new if voice.title == old else voice.title
        return self._put(old, msgspec.structs.replace(voice, id=new, title=title))

    def edit(self, voice: str, details: Details, viewer: Viewer = ADMIN) -> Voice:
        """Change the name and description of a voice; its owner stays. Raises RequestError: as :meth:`delete`."""
        found = self._changeable(voice, "id", viewer)
        named = details._asdict() | {"tags": list(details.tags), "owner": found.owner}
        return self._put(voice, msgspec.structs.replace(found, **named))

    def delete(self, voice: str, param: str, viewer: Viewer = ADMIN) -> Voice:
        """Delete a voice and return it.

        Raises:
            RequestError: not an id, no such voice for this client, or one of the checkpoint or of another owner.
        """
        found = self._changeable(voice, param, viewer)
        with writing(self._folders):
            self._catalogue.delete(voice)
        self.changes += 1
        shutil.rmtree(self._folders / found.folder, ignore_errors=True)
        return found

    def read_codes(self, voice: Voice) -> list[Array]:
        """Read the codes of each recording, int16 [10, frames], read-only.

        Raises:
            codes.CodesError: they are damaged, or of another codec.
        """
        if not voice.folder:
            return [self._model.voices.voices[voice.id].codes]
        path = self._folders / voice.folder / CODES
        return codes_file.read(path, self._model.codec_fingerprint, len(voice.recordings))

    def read_audio(self, voice: Voice) -> list[bytes]:
        """Read the file of each recording.

        Raises:
            RequestError: they can't be read.
        """
        folder = self._folders / voice.folder
        try:
            return [(folder / _audio_name(number)).read_bytes() for number in range(len(voice.recordings))]
        except OSError as error:
            message = f"voice {voice.id!r} can't be read: {error.strerror}"
            raise RequestError("internal", "voice_unreadable", message, reason="error") from None

    def write_codes(self, voice: Voice, codes: list[Array]) -> None:
        """Replace the codes of a voice with those of this codec; a voice deleted meanwhile stays deleted."""
        try:
            content = codes_file.pack(codes, self._model.codec_fingerprint)
            write_atomically(self._folders / voice.folder / CODES, content)
        except FileNotFoundError:
            log.info("a voice was deleted while it was encoded anew")
        except OSError as error:
            log.warning("codes of a voice can't be saved, and are made again when needed: %s", error)

    def close(self) -> None:
        self._catalogue.close()

    def _write(self, folder: Path, uploads: list[Upload]) -> int:
        """Write the files of a voice durably; returns their size in bytes."""
        files = {_audio_name(number): upload.audio for number, upload in enumerate(uploads)}
        files[CODES] = codes_file.pack([upload.codes for upload in uploads], self._model.codec_fingerprint)
        for name, content in files.items():
            write_atomically(folder / name, content)
        _sync(folder)
        _sync(self._folders)
        return sum(map(len, files.values()))

    def _row(self, voice: str, details: Details, folder: str, size: int, uploads: list[Upload]) -> Voice:
        now = time.time()
        recordings = [
            Recording(upload.text, digest(upload.audio), upload.codes.shape[1] / self._model.frame_rate)
            for upload in uploads
        ]
        named = details._asdict() | {"tags": list(details.tags)}
        return Voice(id=voice, folder=folder, created=now, updated=now, size=size, recordings=recordings, **named)

    def _put(self, old: str, voice: Voice) -> Voice:
        changed = msgspec.structs.replace(voice, updated=time.time())
        with writing(self._folders):
            replaced = self._catalogue.replace(old, changed)
        if not replaced:
            raise RequestError("not_found", "voice_not_found", f"voice {old!r} was deleted")
        self.changes += 1
        return changed

    def _visible(self, voice: str, viewer: Viewer) -> Voice | None:
        found = self._catalogue.find(voice)
        return found if found is not None and viewer.sees(found) else self._bundled.get(voice)

    def _changeable(self, voice: str, param: str, viewer: Viewer) -> Voice:
        found = self.find(voice, param, viewer)
        if not found.folder:
            raise RequestError(
                "forbidden", "voice_read_only", f"{param}: voice {voice!r} belongs to the checkpoint", param
            )
        viewer.check_control(found, param)
        return found

    def _check_free(self, voice: str, param: str) -> None:
        in_checkpoint = any(name.lower() == voice.lower() for name in self._bundled)
        if in_checkpoint or self._catalogue.like(voice) is not None:
            raise taken(voice, param)

    def _hint(self, voice: str, viewer: Viewer) -> str:
        known = self.ids(viewer)
        like = self._catalogue.like(voice)
        if like is not None and like in known:
            return f"there is {like!r}, and upper and lower case differ"
        more = f" and {len(known) - _NAMED_IN_HINT} more" if len(known) > _NAMED_IN_HINT else ""
        return f"known: {', '.join(known[:_NAMED_IN_HINT])}{more}" if known else "there are none yet"

    def _repair(self) -> None:
        """Remove folders without a row (remains of a crash) and rows without a folder (files lost)."""
        voices = self._catalogue.all()
        for folder in {path.name for path in self._folders.iterdir()} - {voice.folder for voice in voices}:
            shutil.rmtree(self._folders / folder, ignore_errors=True)
        for voice in voices:
            if not (self._folders / voice.folder).is_dir():
                log.warning("voice %r has lost its files, and is no longer listed", voice.id)
                self._catalogue.delete(voice.id)


def _bundled(name: str, reference: Reference, frame_rate: float) -> Voice:
    recording = Recording(reference.text, "", reference.codes.shape[1] / frame_rate)
    return Voice(name, "", name, "", "public", [], _CHECKPOINT, 0.0, 0.0, 0, [recording])


def _audio_name(number: int) -> str:
    return f"{number}.audio"


def _sync(directory: Path) -> None:
    """Flush a directory's entries to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
