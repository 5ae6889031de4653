"""Parses a reply's bytes as far as a client needs: where the sound begins, and its length."""

from __future__ import annotations

import re
import struct
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["wav", "pcm"]

UNKNOWN_SIZE = 0xFFFFFFFF
_RATE = re.compile(r"rate=(\d+)")


class SoundError(Exception):
    """The reply is not the requested sound."""


class SoundStream:
    """Incremental parser of 16-bit WAV or headerless PCM.

    The sample rate of a WAV stream is read from its header, wherever that is cut; that of PCM from ``headers``
    (``X-Sample-Rate``, or ``rate=`` in the content type), else ``default_rate`` is assumed.
    """

    def __init__(self, kind: Kind, headers: dict[str, str], default_rate: int) -> None:
        self.rate = _told_rate(headers) or default_rate
        self.bytes_per_second = 2 * self.rate
        self.audio_bytes = 0
        self._head: bytes | None = b"" if kind == "wav" else None  # of a WAV file, until its sound begins

    @property
    def seconds(self) -> float:
        return self.audio_bytes / self.bytes_per_second

    def feed(self, data: bytes) -> int:
        """Count the bytes of sound among new and held-back bytes.

        Raises:
            SoundError: this is no WAV stream.
        """
        if self._head is None:
            new = len(data)
        else:
            self._head += data
            begin = self._find_sound(self._head)
            if begin is None:
                return 0
            new = len(self._head) - begin
            self._head = None
        self.audio_bytes += new
        return new

    def _find_sound(self, head: bytes) -> int | None:
        """Offset of the sound after the RIFF header; None while the header is incomplete."""
        if not b"RIFF".startswith(head[:4]) or (len(head) >= 12 and head[8:12] != b"WAVE"):
            raise SoundError(f"the reply is no WAV stream: it begins with {head[:12]!r}")
        at = 12
        while len(head) >= at + 8:
            tag, size = struct.unpack_from("<4sI", head, at)
            if tag == b"data":
                return at + 8
            if tag == b"fmt " and len(head) >= at + 24:
                self.rate, self.bytes_per_second = struct.unpack_from("<II", head, at + 12)
            at += 8 + size + size % 2
        return None


def _told_rate(headers: dict[str, str]) -> int | None:
    told = {name.lower(): value for name, value in headers.items()}
    if told.get("x-sample-rate", "").isdigit():
        return int(told["x-sample-rate"])
    found = _RATE.search(told.get("content-type", ""))
    return int(found[1]) if found else None


def with_sizes(wav: bytes, length: int) -> bytes:
    """Return the header of a streamed WAV file with its sizes filled in; ``length``: bytes of the whole file."""
    data = wav.find(b"data")
    if not wav.startswith(b"RIFF") or data < 0:
        return wav
    fixed = bytearray(wav)
    struct.pack_into("<I", fixed, 4, min(length - 8, UNKNOWN_SIZE))
    size = min(length - data - 8, UNKNOWN_SIZE)
    struct.pack_into("<I", fixed, data + 4, size)
    fact = wav.find(b"fact", 0, data)
    if fact >= 0:  # the number of samples, of codes with one byte each
        struct.pack_into("<I", fixed, fact + 8, size)
    return bytes(fixed)
