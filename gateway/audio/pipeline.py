"""Output pipeline from the model's samples to bytes: tempo, gain, resampling and encoding, in small pieces."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import soxr

from common.messages import Array
from gateway.audio.delivery import CODECS, Delivery, Format
from gateway.audio.g711 import G711, Law
from gateway.audio.mp3 import Mp3
from gateway.audio.pcm import Pcm, Wav

if CODECS:  # now rather than with the first request: it takes a tenth of a second
    from gateway.audio import coded
    from gateway.audio.tempo import Tempo

LIGHT_SAMPLES = 65_536  # so many can be resampled and written as integers within a millisecond or two

_LAWS: dict[Format, Law] = {"ulaw": "ulaw", "alaw": "alaw", "wav_ulaw": "ulaw", "wav_alaw": "alaw"}
_NONE = np.zeros(0, np.float32)


class Encoder(Protocol):
    """Encoder of one stream in one format, at ``rate`` samples per second.

    ``slow``: encoding takes so long that it belongs into a thread. ``lag``: samples of silence that push out all that
    was kept back.
    """

    media_type: str
    rate: int
    slow: bool

    @property
    def lag(self) -> int: ...

    def encode(self, samples: Array) -> bytes:
        """Encode the next samples, float32 [n], after a header before the first; an encoder may hold some back."""

    def flush(self) -> bytes:
        """Return the bytes held back and the end of the stream."""

    def sealed(self, first: bytes) -> bytes:
        """Return the stream's first bytes with its length filled in, where the header has one; call after the end."""


class Pipeline:
    """One continuous encoded stream. Use it from one thread at a time.

    ``samples``: given to the encoder, at ``rate``. ``not_finite``: samples that were NaN or infinite, and became zero.
    """

    def __init__(self, delivery: Delivery, model_rate: int) -> None:
        self._encoder = _encoder(delivery)
        self._gain = np.float32(10 ** (delivery.volume / 20))
        self._tempo = None if delivery.speed == 1 else Tempo(model_rate, delivery.speed)
        self.media_type, self.rate = self._encoder.media_type, self._encoder.rate
        self._rates = model_rate, self.rate
        self._resampler = self._fresh_resampler()
        self.samples = 0
        self.not_finite = 0

    def heavy(self, samples: int) -> bool:
        """Return whether encoding ``samples`` takes so long that it belongs in a thread."""
        return self._encoder.slow or self._tempo is not None or samples > LIGHT_SAMPLES

    def encode(self, samples: Array) -> bytes:
        """Encode the next samples, float32 [n] at the model's rate; some may be held back."""
        samples = self._finite(samples)
        if self._tempo is not None:
            samples = self._tempo.process(samples)
        return self._render(samples, last=False)

    def pause(self) -> bytes:
        """Return the bytes held back without ending the stream, for a pause of unknown length.

        A compressed stream gets silence of about a frame or two, since it can't be cut elsewhere.
        """
        data = self._drain()
        silence = np.zeros(self._encoder.lag, np.float32)
        self.samples += len(silence)
        return data + self._encoder.encode(silence)

    def flush(self) -> bytes:
        """Return the bytes held back and the end of the stream."""
        return self._drain() + self._encoder.flush()

    def sealed(self, first: bytes) -> bytes:
        """Return the stream's first bytes with its length filled in, where the header has one; call after the end."""
        return self._encoder.sealed(first)

    def _drain(self) -> bytes:
        return self._render(_NONE if self._tempo is None else self._tempo.drain(), last=True)

    def _render(self, samples: Array, last: bool) -> bytes:
        if self._gain != 1:
            samples = np.clip(samples * self._gain, -1, 1)
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=last)
            if last:
                self._resampler = self._fresh_resampler()
        self.samples += len(samples)
        return self._encoder.encode(samples)

    def _fresh_resampler(self) -> soxr.ResampleStream | None:
        source, target = self._rates
        return None if source == target else soxr.ResampleStream(source, target, 1, dtype="float32", quality="HQ")

    def _finite(self, samples: Array) -> Array:
        finite = np.isfinite(samples)
        if finite.all():
            return samples
        self.not_finite += int(len(samples) - np.count_nonzero(finite))
        return np.where(finite, samples, np.float32(0))


def _encoder(delivery: Delivery) -> Encoder:
    rate = delivery.rate
    if delivery.format in _LAWS:
        law = G711(_LAWS[delivery.format])
        return Wav(law) if delivery.format.startswith("wav") else law
    if delivery.format == "pcm":
        return Pcm(rate)
    if delivery.format == "wav":
        return Wav(Pcm(rate))
    if delivery.format == "mp3":
        return Mp3(rate, delivery.mp3_bitrate)
    if delivery.format == "opus":
        return coded.Opus(delivery.opus_bitrate)
    return coded.Aac(rate) if delivery.format == "aac" else coded.Flac(rate)
