"""Uncompressed formats: headerless PCM and WAV."""

from __future__ import annotations

import struct

import numpy as np

from common.messages import Array

UNKNOWN_SIZE = 0xFFFFFFFF  # of a WAV file whose end is not known yet
LOWEST, HIGHEST = np.float32(-32768), np.float32(32767)  # of 16 bits
_HEADER_BYTES = 44


def to_int16(samples: Array) -> Array:
    """Convert samples, float [n] within -1 and 1, to little-endian int16 [n]; values beyond are clipped."""
    scaled = np.rint(samples * np.float32(32768))
    return scaled.clip(LOWEST, HIGHEST, out=scaled).astype("<i2")


class Pcm:
    """Headerless PCM: 16-bit little-endian mono."""

    slow = False
    lag = 0

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.media_type = f"audio/pcm;rate={rate};channels=1"

    def encode(self, samples: Array) -> bytes:
        return to_int16(samples).tobytes()

    def flush(self) -> bytes:
        return b""

    def sealed(self, first: bytes) -> bytes:
        return first


class Wav(Pcm):
    """WAV: PCM after one RIFF header of 44 bytes."""

    def __init__(self, rate: int) -> None:
        super().__init__(rate)
        self.media_type = "audio/wav"
        self._size = 0  # bytes of samples so far

    def encode(self, samples: Array) -> bytes:
        data = super().encode(samples)
        head = b"" if self._size or not data else self._header(None)
        self._size += len(data)
        return head + data

    def sealed(self, first: bytes) -> bytes:
        return self._header(self._size) + first[_HEADER_BYTES:]

    def _header(self, size: int | None) -> bytes:
        data = UNKNOWN_SIZE if size is None else size
        riff = UNKNOWN_SIZE if size is None else 36 + size
        layout = struct.pack("<IHHIIHH", 16, 1, 1, self.rate, 2 * self.rate, 2, 16)
        return b"RIFF" + struct.pack("<I", riff) + b"WAVEfmt " + layout + b"data" + struct.pack("<I", data)
