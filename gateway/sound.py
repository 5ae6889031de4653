"""Sound as bytes: float samples to 16-bit integers, and those to the formats a client can ask for."""

from __future__ import annotations

import struct
from typing import Literal, Protocol, TypeAlias

import lameenc
import numpy as np

from common.messages import Array

Format: TypeAlias = Literal["mp3", "wav", "pcm"]

UNKNOWN_SIZE = 0xFFFFFFFF  # of a WAV file whose end is not known yet
MP3_QUALITY = 5  # LAME's scale, 0 best and slowest; 5 costs 0.4 % of a core per stream


def to_int16(samples: Array) -> Array:
    """Samples float [n] within -1 and 1 as little-endian int16 [n]; what is beyond is clipped."""
    return np.clip(np.rint(samples * np.float32(32768)), -32768, 32767).astype("<i2")


class Encoder(Protocol):
    """One stream of sound in one format. ``slow``: encoding takes so long that it belongs into a thread."""

    media_type: str
    slow: bool

    def header(self, samples: int | None) -> bytes:
        """What stands before the sound; ``samples`` of the whole, None: not known yet."""

    def encode(self, samples: Array) -> bytes:
        """Bytes for the next samples, float32 [n]; an encoder may keep some back."""

    def flush(self) -> bytes:
        """What was kept back."""


class Pcm:
    """Bare samples: 16-bit little-endian mono."""

    slow = False

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.media_type = f"audio/pcm;rate={rate};channels=1"

    def header(self, samples: int | None) -> bytes:
        return b""

    def encode(self, samples: Array) -> bytes:
        return to_int16(samples).tobytes()

    def flush(self) -> bytes:
        return b""


class Wav(Pcm):
    """The same samples behind a RIFF header of 44 bytes."""

    def __init__(self, rate: int) -> None:
        super().__init__(rate)
        self.media_type = "audio/wav"

    def header(self, samples: int | None) -> bytes:
        data = UNKNOWN_SIZE if samples is None else 2 * samples
        riff = UNKNOWN_SIZE if samples is None else 36 + data
        layout = struct.pack("<IHHIIHH", 16, 1, 1, self.rate, 2 * self.rate, 2, 16)
        return b"RIFF" + struct.pack("<I", riff) + b"WAVEfmt " + layout + b"data" + struct.pack("<I", data)


class Mp3:
    """MPEG audio layer III at a constant bit rate: frames only, no ID3 tag and no Xing header, so it can be joined."""

    media_type = "audio/mpeg"
    slow = True

    def __init__(self, rate: int, kilobits: int) -> None:
        self._lame = lameenc.Encoder()
        self._lame.silence()
        self._lame.set_in_sample_rate(rate)
        self._lame.set_out_sample_rate(rate)
        self._lame.set_channels(1)
        self._lame.set_bit_rate(kilobits)
        self._lame.set_quality(MP3_QUALITY)

    def header(self, samples: int | None) -> bytes:
        return b""

    def encode(self, samples: Array) -> bytes:
        return bytes(self._lame.encode(to_int16(samples).tobytes()))

    def flush(self) -> bytes:
        return bytes(self._lame.flush())


def encoder(sound_format: Format, rate: int, mp3_bitrate: int) -> Encoder:
    """A fresh encoder. ``rate`` in samples per second, ``mp3_bitrate`` in kilobits per second."""
    if sound_format == "mp3":
        return Mp3(rate, mp3_bitrate)
    return Wav(rate) if sound_format == "wav" else Pcm(rate)
