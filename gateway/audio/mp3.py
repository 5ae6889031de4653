"""MP3 encoding."""

from __future__ import annotations

import lameenc

from common.messages import Array
from gateway.audio.pcm import to_int16

QUALITY = 5  # LAME's scale, 0 best and slowest; 5 costs 0.4 % of a core per stream


class Mp3:
    """MP3 at a constant bit rate, without ID3 tag and Xing header, so that replies can be concatenated.

    A bit rate beyond what MPEG allows at a sample rate (160 kbit/s at 16 to 24 kHz, 64 below) becomes the highest one.
    """

    media_type = "audio/mpeg"
    slow = True
    lag = 4 * 1152  # two frames of LAME's look-ahead, the decoder's delay, and a frame that is not full yet

    def __init__(self, rate: int, kilobits: int) -> None:
        self.rate = rate
        self._lame = lameenc.Encoder()
        self._lame.silence()
        self._lame.set_in_sample_rate(rate)
        self._lame.set_out_sample_rate(rate)
        self._lame.set_channels(1)
        self._lame.set_bit_rate(kilobits)
        self._lame.set_quality(QUALITY)

    def encode(self, samples: Array) -> bytes:
        return bytes(self._lame.encode(to_int16(samples).tobytes()))

    def flush(self) -> bytes:
        return bytes(self._lame.flush())

    def sealed(self, first: bytes) -> bytes:
        return first
