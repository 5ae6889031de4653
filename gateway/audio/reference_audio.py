"""Reference audio: decodes an uploaded file to samples for the codec.

libsndfile reads WAV, FLAC, OGG (Vorbis and Opus), MP3, AIFF and more. PyAV, if it is installed, reads AAC, M4A, WebM,
AMR, and MPEG streams that begin with junk. PyAV is told the container by the file's first bytes and never guesses, so
that no playlist or other container that names further files or addresses is opened.
"""

from __future__ import annotations

import importlib
import io
import itertools
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import soundfile
import soxr

from common.messages import Array
from gateway.errors import InvalidFieldError

BLOCK = 16_384  # sample frames read at a time
RATES = (1_000, 384_000)  # samples per second, lowest and highest
SILENCE = 1e-3  # peak
MOST_TRIED = 16  # places where a stream may begin
SEARCHED = 64 * 1024  # bytes in which the first frame of a stream must begin
ID3_HEADER = 10  # bytes, and as many of a footer
ACCEPTED = "accepted are WAV, FLAC, MP3, OGG (Opus, Vorbis), AAC, M4A, WebM, AIFF, CAF and AMR"
_CONTAINERS = {b"\x1aE\xdf\xa3": "matroska", b"#!AMR": "amr", b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "asf"}


class AudioError(ValueError):
    """A file that can't be used as reference audio; the message continues a sentence ("is empty")."""

    def named(self, param: str) -> InvalidFieldError:
        """The same problem as an error of the field ``param``."""
        return InvalidFieldError(param, str(self))


def decode(data: bytes, rate: int, seconds: tuple[float, float]) -> Array:
    """Decode to mono samples, float32 [n] at ``rate``, within -1 and 1. ``seconds``: shortest and longest duration.

    Raises:
        AudioError: not audio, too short, too long, silent, or not finite.
    """
    if not data:
        raise AudioError("is empty")
    shortest, longest = seconds
    source_rate, samples = _read(data, longest)
    duration = len(samples) / source_rate
    if duration < shortest:
        raise AudioError(f"lasts {duration:.2f} s; at least {shortest:g} s are needed")
    if duration > longest:
        raise AudioError(f"lasts more than {longest:g} s")
    if not np.isfinite(samples).all():
        raise AudioError("holds samples that are not finite")
    if np.abs(samples).max() < SILENCE:
        raise AudioError("is silent")
    return np.clip(soxr.resample(samples, source_rate, rate, quality="HQ"), -1, 1)


def header_seconds(data: bytes) -> float:
    """Duration by the header of a file, which may be wrong; 0 if libsndfile can't read it."""
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return file.frames / file.samplerate if file.frames > 0 else 0.0
    except (soundfile.SoundFileError, RuntimeError):
        return 0.0


def _read(data: bytes, longest: float) -> tuple[int, Array]:
    """Return rate and mono samples, float32 [n], of little more than ``longest`` seconds."""
    data = _sized(_untagged(data))
    container = _container(data)
    if container is not None:
        return _with_av(data, container, longest)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return file.samplerate, _collect(_blocks(file), _checked(file.samplerate), longest)
    except (soundfile.SoundFileError, RuntimeError) as error:
        problem = AudioError(f"is not audio that can be read ({_words(error)}); {ACCEPTED}")
    for place, format_ in itertools.islice(_frames(data), MOST_TRIED):
        try:
            return _with_av(data[place:], format_, longest)
        except AudioError as error:
            problem = error
    raise problem


def _words(error: Exception) -> str:
    said = getattr(error, "error_string", None) or getattr(error, "strerror", None) or error
    return str(said).rstrip(".")


def _untagged(data: bytes) -> bytes:
    """Drop ID3v2 tags at the front: their header has their size in four 7-bit digits."""
    while data[:3] == b"ID3" and len(data) > ID3_HEADER:
        size = sum((byte & 0x7F) << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=True))
        data = data[ID3_HEADER + size + (ID3_HEADER if data[5] & 0x10 else 0) :]
    return data


def _sized(data: bytes) -> bytes:
    """Let a WAV whose data chunk claims no bytes, as an unfinished recording does, have all that follow."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return data
    place = 12
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        if data[place : place + 4] == b"data":
            rest = len(data) - place - 8
            return data if size else data[: place + 4] + rest.to_bytes(4, "little") + data[place + 8 :]
        place += 8 + size + size % 2
    return data


def _frames(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield places behind junk where an MPEG audio or ADTS stream may begin, with FFmpeg's name of the format."""
    place = data.find(b"\xff", 0, SEARCHED)
    while place >= 0 and place + 4 <= len(data):
        second, third = data[place + 1], data[place + 2]
        if second & 0xF6 == 0xF0 and third >> 2 & 0xF < 13 and _adts_follows(data, place):
            yield place, "aac"
        elif second & 0xE0 == 0xE0 and second & 0x06 and second & 0x18 != 0x08 and third >> 4 not in (0, 15):
            yield place, "mp3"
        place = data.find(b"\xff", place + 1, SEARCHED)


def _adts_follows(data: bytes, place: int) -> bool:
    """Return whether another ADTS frame follows the one at ``place``, or the data ends with it."""
    header = data[place + 3 : place + 6]
    end = place + ((header[0] & 3) << 11 | header[1] << 3 | header[2] >> 5) if len(header) == 3 else len(data)
    if end >= len(data):
        return end == len(data)
    return end > place and data[end] == 0xFF and data[end + 1 : end + 2] >= b"\xf0"


def _blocks(file: soundfile.SoundFile) -> Iterator[Array]:
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
        yield block.mean(axis=1)


def _container(data: bytes) -> str | None:
    """Return FFmpeg's name of a container that libsndfile can't read."""
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free"):
        return "mp4"
    for start, container in _CONTAINERS.items():
        if data.startswith(start):
            return container
    if data[:1] == b"\xff" and len(data) > 1 and data[1] & 0xF6 == 0xF0:
        return "aac"
    return None


def _with_av(data: bytes, container: str, longest: float) -> tuple[int, Array]:
    av = _av()
    if av is None:
        raise AudioError(f"is {container}, which this server can't read; send WAV, FLAC, OGG or MP3")
    try:
        with av.open(io.BytesIO(data), format=container) as file:
            if not file.streams.audio:
                raise AudioError(f"has no sound in it; {ACCEPTED}")
            rate = _checked(file.streams.audio[0].rate or 0)
            mono = av.AudioResampler(format="flt", layout="mono", rate=rate)
            frames = (part for frame in file.decode(audio=0) for part in mono.resample(frame))
            return rate, _collect((part.to_ndarray()[0] for part in frames), rate, longest)
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, AudioError):
            raise
        raise AudioError(f"is not audio that can be read ({_words(error)}); {ACCEPTED}") from None


def _av() -> ModuleType | None:
    try:
        return importlib.import_module("av")
    except ImportError:
        return None


def _checked(rate: int) -> int:
    if not RATES[0] <= rate <= RATES[1]:
        raise AudioError(f"has a sample rate of {rate}, not {RATES[0]} to {RATES[1]}")
    return rate


def _collect(blocks: Iterator[Array], rate: int, longest: float) -> Array:
    """Join blocks up to about ``longest`` seconds: the length in a header may be wrong, or a trap."""
    kept = [np.zeros(0, np.float32)]
    missing = int(longest * rate) + 1
    for block in blocks:
        kept.append(block)
        missing -= len(block)
        if missing <= 0:
            break
    return np.concatenate(kept)
