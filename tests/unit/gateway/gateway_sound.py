"""Decoding what the gateway sends, as its clients would."""

from __future__ import annotations

import io
from typing import NamedTuple

import av
import numpy as np
import soundfile
from gateway_fakes import RATE

from common.messages import Array

DELAY = {"mp3": 1105, "aac": 1024}  # samples of encoder and decoder that these formats can't tell of
FRAME = {"mp3": 1152, "aac": 1024}
CONTENT_TYPE = {
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
}


class Decoded(NamedTuple):
    samples: Array
    rate: int


def decode(data: bytes) -> Decoded:
    """Samples float32 [n] of a file with a header or frames; one that was cut off is read as far as it goes."""
    parts: list[Array] = []
    rate = 0
    with av.open(io.BytesIO(data)) as file:
        for frame in file.decode(audio=0):
            values = frame.to_ndarray().reshape(-1)
            parts.append(values / np.float32(32768) if values.dtype == np.int16 else values)
            rate = frame.sample_rate
    return Decoded(np.concatenate(parts), rate)


def heard(sound_format: str, data: bytes, samples: int) -> Array:
    """The part of a decoded file that was put in, having checked that around it there is a frame of padding at most."""
    decoded = decode(data).samples
    delay = DELAY.get(sound_format, 0)
    padding = len(decoded) - delay - samples
    assert 0 <= padding <= FRAME.get(sound_format, 0), (sound_format, len(decoded), samples)
    return decoded[delay : delay + samples]


def noise_db(expected: Array, got: Array) -> float:
    """Power of the difference over that of what is expected, in dB."""
    assert len(expected) == len(got)
    return float(10 * np.log10(np.mean((expected - got) ** 2) / np.mean(expected**2) + 1e-20))


def recording() -> bytes:
    """Two seconds of a tone, a WAV file."""
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(np.arange(2 * RATE) * 0.1), RATE, format="WAV")
    return file.getvalue()
