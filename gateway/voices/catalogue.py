"""Catalogue of the voice library in SQLite: one row per voice. A voice exists exactly as long as its row."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from common.addresses import is_address
from gateway.errors import RequestError

VERSION = 2

Visibility: TypeAlias = Literal["public", "unlist", "private"]

_SCHEMA = """
CREATE TABLE voices (
    id TEXT PRIMARY KEY,
    folder TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    visibility TEXT NOT NULL,
    tags TEXT NOT NULL,
    owner TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    size INTEGER NOT NULL,
    recordings TEXT NOT NULL
);
CREATE UNIQUE INDEX ids_in_any_case ON voices (id COLLATE NOCASE);
"""


class Recording(Struct, frozen=True):
    """A recording of a voice. ``digest``: of its file."""

    text: str
    digest: str
    seconds: float


class Voice(Struct, frozen=True):
    """A voice. ``folder``: of its files, empty for one of the checkpoint; times in seconds since 1970."""

    id: str
    folder: str
    title: str
    description: str
    visibility: Visibility
    tags: list[str]
    owner: str
    created: float
    updated: float
    size: int
    recordings: list[Recording]


_COLUMNS = Voice.__struct_fields__
_AS_JSON = ("tags", "recordings")


class Catalogue:
    """Catalogue of voices, safe for several threads and processes."""

    def __init__(self, path: Path) -> None:
        """Open the catalogue, or create one.

        Raises:
            OSError: it can't be used.
        """
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = FULL")
            self._prepare(path)
        except sqlite3.Error as error:
            raise OSError(f"{path}: {error}") from None

    def all(self) -> list[Voice]:
        """By id."""
        return [_voice(row) for row in self._select("ORDER BY id")]

    def find(self, voice: str) -> Voice | None:
        return next((_voice(row) for row in self._select("WHERE id = ?", voice)), None)

    def like(self, voice: str) -> str | None:
        """Return the id that differs from this one only in case, if any."""
        return next((_voice(row).id for row in self._select("WHERE id = ? COLLATE NOCASE", voice)), None)

    def totals(self) -> tuple[int, int]:
        """Return the number of voices and the bytes of their files."""
        with self._lock:
            count, size = self._database.execute("SELECT count(*), coalesce(sum(size), 0) FROM voices").fetchone()
        return count, size

    def insert(self, voice: Voice, most: int, most_bytes: int) -> None:
        """Add a voice if it is new and the library has room.

        Raises:
            RequestError: the id is taken, or the library is full.
        """
        marks = ", ".join("?" * len(_COLUMNS))
        with self._transaction() as database:
            if database.execute("SELECT 1 FROM voices WHERE id = ? COLLATE NOCASE", (voice.id,)).fetchone():
                raise taken(voice.id, "id")
            count, size = database.execute("SELECT count(*), coalesce(sum(size), 0) FROM voices").fetchone()
            check_room(count + 1, size + voice.size, most, most_bytes)
            database.execute(f"INSERT INTO voices ({', '.join(_COLUMNS)}) VALUES ({marks})", _row(voice))

    def replace(self, old: str, voice: Voice) -> bool:
        """Replace a voice, perhaps under another id; returns False if there is no old one.

        Raises:
            RequestError: another voice has the id.
        """
        settings = ", ".join(f"{column} = ?" for column in _COLUMNS)
        with self._transaction() as database:
            try:
                return bool(
                    database.execute(f"UPDATE voices SET {settings} WHERE id = ?", (*_row(voice), old)).rowcount
                )
            except sqlite3.IntegrityError:
                raise taken(voice.id, "new_reference_id") from None

    def delete(self, voice: str) -> bool:
        """Delete a voice; returns False if there is none."""
        with self._transaction() as database:
            return bool(database.execute("DELETE FROM voices WHERE id = ?", (voice,)).rowcount)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _prepare(self, path: Path) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._database.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {VERSION};COMMIT;")
        elif version == 1:
            self._migrate_from_1()
        elif version != VERSION:
            raise OSError(f"{path}: has version {version}, and this server knows version {VERSION}")

    def _migrate_from_1(self) -> None:
        """Version 1 kept the address of a client without a key as the owner; such voices belong to nobody."""
        with self._transaction() as database:
            owners = [owner for (owner,) in database.execute("SELECT DISTINCT owner FROM voices").fetchall()]
            for owner in filter(is_address, owners):
                database.execute("UPDATE voices SET owner = '' WHERE owner = ?", (owner,))
            database.execute(f"PRAGMA user_version = {VERSION}")

    def _select(self, condition: str, *values: str) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(f"SELECT {', '.join(_COLUMNS)} FROM voices {condition}", values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise


def taken(voice: str, param: str) -> RequestError:
    message = f"{param}: there is a voice {voice!r} already, or one whose id differs only in upper and lower case"
    return RequestError("conflict", "voice_exists", message, param)


def check_room(count: int, size: int, most: int, most_bytes: int) -> None:
    """Check that the library may become so large.

    Raises:
        RequestError: there would be too many voices, or too many bytes.
    """
    if count > most:
        raise RequestError("conflict", "too_many_voices", f"there are {most} voices, and no more are allowed")
    if size > most_bytes:
        message = f"the library would hold {size} bytes, and {most_bytes} are allowed"
        raise RequestError("conflict", "voice_library_full", message)


def _row(voice: Voice) -> list[Any]:
    values = msgspec.structs.asdict(voice)
    return [msgspec.json.encode(values[name]).decode() if name in _AS_JSON else values[name] for name in _COLUMNS]


def _voice(row: tuple[Any, ...]) -> Voice:
    values = dict(zip(_COLUMNS, row, strict=True))
    values |= {name: msgspec.json.decode(values[name]) for name in _AS_JSON}
    return msgspec.convert(values, Voice)
