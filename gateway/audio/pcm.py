"""Headerless PCM, and WAV around it or around another code with samples of one size."""

from __future__ import annotations

import struct

import numpy as np

from common.messages import Array

UNKNOWN_SIZE = 0xFFFFFFFF  # of a WAV file whose end is not known yet
LOWEST, HIGHEST = np.float32(-32768), np.float32(32767)  # of 16 bits
_CHUNK_HEAD_BYTES = 8
_SILENCE = np.zeros(1, np.float32)


def to_int16(samples: Array) -> Array:
    """Convert samples, float [n] within -1 and 1, to little-endian int16 [n]; values beyond are clipped."""
    scaled = np.rint(samples * np.float32(32768))
    return scaled.clip(LOWEST, HIGHEST, out=scaled).astype("<i2")


class Pcm:
    """Headerless PCM: 16-bit little-endian mono.

    ``sample_bytes``: of one sample. ``wav_code``: the format's number in a WAV header.
    """

    media_type: str
    slow = False
    lag = 0
    sample_bytes = 2
    wav_code = 1

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.media_type = f"audio/pcm;rate={rate};channels=1"

    def encode(self, samples: Array) -> bytes:
        return to_int16(samples).tobytes()

    def flush(self) -> bytes:
        return b""

    def sealed(self, first: bytes) -> bytes:
        return first


class Wav:
    """WAV: headerless samples after one RIFF header.

    Samples of one byte get one of silence more where their number is odd, since a chunk's length in RIFF is even.
    """

    media_type = "audio/wav"
    slow = False
    lag = 0

    def __init__(self, coder: Pcm) -> None:
        self.rate = coder.rate
        self._coder = coder
        self._size = 0  # bytes of samples so far
        self._header_bytes = len(self._header(None))

    def encode(self, samples: Array) -> bytes:
        data = self._coder.encode(samples)
        head = b"" if self._size or not data else self._header(None)
        self._size += len(data)
        return head + data

    def flush(self) -> bytes:
        return self.encode(_SILENCE) if self._size % 2 else b""

    def sealed(self, first: bytes) -> bytes:
        return self._header(self._size) + first[self._header_bytes :]

    def _header(self, size: int | None) -> bytes:
        """Build the header for ``size`` bytes of samples; None: not known yet. Codes but PCM have a fact chunk."""
        width, code = self._coder.sample_bytes, self._coder.wav_code
        layout = struct.pack("<HHIIHH", code, 1, self.rate, width * self.rate, width, 8 * width)
        if code == Pcm.wav_code:
            chunks = _chunk(b"fmt ", layout)
        else:
            count = UNKNOWN_SIZE if size is None else size // width
            chunks = _chunk(b"fmt ", layout + bytes(2)) + _chunk(b"fact", struct.pack("<I", count))
        riff = UNKNOWN_SIZE if size is None else len(b"WAVE") + len(chunks) + _CHUNK_HEAD_BYTES + size
        data = UNKNOWN_SIZE if size is None else size
        return b"RIFF" + struct.pack("<I", riff) + b"WAVE" + chunks + b"data" + struct.pack("<I", data)


def _chunk(tag: bytes, content: bytes) -> bytes:
    return tag + struct.pack("<I", len(content)) + content
