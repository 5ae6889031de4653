"""Telephony: µ-law and A-law (ITU-T G.711), one byte per sample, 8 kHz."""

from __future__ import annotations

import functools
import io
from typing import Literal, TypeAlias

import numpy as np
import soundfile

from common.messages import Array
from gateway.audio.pcm import Pcm, to_int16

Law: TypeAlias = Literal["ulaw", "alaw"]

RATE = 8_000

_MEDIA_TYPES = {"ulaw": "audio/basic", "alaw": "audio/x-alaw"}
_WAV_CODES = {"ulaw": 7, "alaw": 6}
_INT16 = np.arange(-(2**15), 2**15, dtype=np.int16)


@functools.cache
def _code_of(law: Law) -> Array:
    """Build the table from a 16-bit sample, uint16 with the same bits, to its code: uint8 [65536]."""
    written = io.BytesIO()
    soundfile.write(written, _INT16, RATE, format="RAW", subtype=law.upper())
    codes = np.empty(2**16, np.uint8)
    codes[_INT16.view(np.uint16)] = np.frombuffer(written.getvalue(), np.uint8)
    return codes


class G711(Pcm):
    """Headerless µ-law or A-law: one byte per sample."""

    sample_bytes = 1

    def __init__(self, law: Law) -> None:
        super().__init__(RATE)
        self.media_type = _MEDIA_TYPES[law]
        self.wav_code = _WAV_CODES[law]
        self._codes = _code_of(law)

    def encode(self, samples: Array) -> bytes:
        return self._codes[to_int16(samples).view("<u2")].tobytes()
