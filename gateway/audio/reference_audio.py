"""Reference audio: decodes an uploaded file to samples for the codec.

libsndfile reads WAV, FLAC, OGG (Vorbis and Opus), MP3, AIFF and more; what it can't, PyAV does if it is installed:
AAC, M4A and WebM. PyAV is told the container by the file's first bytes and never guesses, so that no playlist or
other container that names further files or addresses is opened.
"""

from __future__ import annotations

import importlib
import io
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
    container = _container(data)
    if container is not None:
        return _with_av(data, container, longest)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return file.samplerate, _collect(_blocks(file), _checked(file.samplerate), longest)
    except soundfile.LibsndfileError as error:
        raise AudioError(f"is not audio that can be read: {error.error_string}") from None
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise AudioError(f"is not audio that can be read: {error}") from None


def _blocks(file: soundfile.SoundFile) -> Iterator[Array]:
    while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
        yield block.mean(axis=1)


def _container(data: bytes) -> str | None:
    """Return FFmpeg's name of a container that libsndfile can't read."""
    if data[4:8] == b"ftyp":
        return "mp4"
    if data[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if data[0] == 0xFF and len(data) > 1 and data[1] & 0xF6 == 0xF0:
        return "aac"
    return None


def _with_av(data: bytes, container: str, longest: float) -> tuple[int, Array]:
    av = _av()
    if av is None:
        raise AudioError(f"is {container}, which this server can't read; send WAV, FLAC, OGG or MP3")
    try:
        with av.open(io.BytesIO(data), format=container) as file:
            if not file.streams.audio:
                raise AudioError("has no sound in it")
            rate = _checked(file.streams.audio[0].rate or 0)
            mono = av.AudioResampler(format="flt", layout="mono", rate=rate)
            frames = (part for frame in file.decode(audio=0) for part in mono.resample(frame))
            return rate, _collect((part.to_ndarray()[0] for part in frames), rate, longest)
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, AudioError):
            raise
        raise AudioError(f"is not audio that can be read: {error}") from None


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
