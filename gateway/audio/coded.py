"""Formats encoded with PyAV (FFmpeg): Opus in Ogg, AAC in ADTS, FLAC. Needs the extra ``codecs``."""

from __future__ import annotations

from typing import Literal

import av
import numpy as np

from common.messages import Array
from gateway.audio.pcm import to_int16

OPUS_PAGE = "20000"  # microseconds; FFmpeg's own default holds sound back for a second
AAC_BITRATE = 96_000
FLAC_LEVEL = "2"  # the highest with short blocks: 27 ms at 44.1 kHz

_TOTAL_SAMPLES = slice(21, 26)  # of a FLAC stream: the last 36 of these bits


class _Written:
    """Write-only file object without seek; the written bytes are taken out of it."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


class _Coded:
    """An encoded stream in a container."""

    media_type: str
    slow = True

    def __init__(
        self,
        container: str,
        codec: Literal["libopus", "aac", "flac"],
        rate: int,
        sample_format: Literal["s16", "fltp"],
        options: dict[str, str],
        codec_options: dict[str, str],
    ) -> None:
        self.rate = rate
        self._format = sample_format
        self._written = _Written()
        self._samples = 0
        options = {"flush_packets": "1"} | options
        self._container = av.open(self._written, "w", format=container, container_options=options)
        self._stream = self._container.add_stream(codec, rate=rate, layout="mono", options=codec_options)
        self._stream.format = sample_format

    @property
    def lag(self) -> int:
        """Delay in samples: an incomplete frame, one of overlap, one of look-ahead; known after the first samples."""
        return 3 * int(self._stream.codec_context.frame_size)

    def encode(self, samples: Array) -> bytes:
        if len(samples):
            values = to_int16(samples) if self._format == "s16" else np.clip(samples, -1, 1)
            frame = av.AudioFrame.from_ndarray(values[np.newaxis], format=self._format, layout="mono")
            frame.sample_rate = self.rate
            frame.pts = self._samples
            self._samples += len(samples)
            self._container.mux(self._stream.encode(frame))
        return self._written.take()

    def flush(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._written.take()

    def sealed(self, first: bytes) -> bytes:
        return first


class Opus(_Coded):
    """Opus in Ogg (RFC 7845), always at 48 kHz, one page per 20 ms."""

    media_type = "audio/ogg"

    def __init__(self, bits: int) -> None:
        options = {"page_duration": OPUS_PAGE}
        super().__init__("ogg", "libopus", 48_000, "s16", options, {"b": str(bits)})


class Aac(_Coded):
    """AAC-LC in ADTS frames, so that streams can be concatenated."""

    media_type = "audio/aac"

    def __init__(self, rate: int) -> None:
        super().__init__("adts", "aac", rate, "fltp", {}, {"b": str(AAC_BITRATE)})


class Flac(_Coded):
    """FLAC. Its header has the number of samples only if the whole is encoded before it is sent."""

    media_type = "audio/flac"

    def __init__(self, rate: int) -> None:
        options = {"metadata_header_padding": "0"}
        super().__init__("flac", "flac", rate, "s16", options, {"compression_level": FLAC_LEVEL})

    def sealed(self, first: bytes) -> bytes:
        before, at, after = first[: _TOTAL_SAMPLES.start], first[_TOTAL_SAMPLES], first[_TOTAL_SAMPLES.stop :]
        upper = int.from_bytes(at) >> 36 << 36
        return before + (upper | self._samples).to_bytes(5) + after
