"""Reference audio: an uploaded file, of any format libsndfile reads, as samples the codec can encode."""

from __future__ import annotations

import io

import numpy as np
import soundfile
import soxr

from common.messages import Array
from gateway.errors import invalid

BLOCK = 16_384  # sample frames read at a time
RATES = (1_000, 384_000)  # samples per second, lowest and highest
SILENCE = 1e-3  # peak


def decode(data: bytes, rate: int, seconds: tuple[float, float], param: str) -> Array:
    """Samples float32 [n] at ``rate``, mono, within -1 and 1. ``seconds``: shortest and longest duration.

    Raises:
        ApiError: 400, naming ``param``: not audio, too short, too long, silent, or not finite.
    """
    if not data:
        raise invalid(param, "is empty")
    shortest, longest = seconds
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            source_rate = file.samplerate
            if not RATES[0] <= source_rate <= RATES[1]:
                raise invalid(param, f"has a sample rate of {source_rate}, not {RATES[0]} to {RATES[1]}")
            samples = _read_mono(file, int(longest * source_rate) + 1)
    except (soundfile.SoundFileError, RuntimeError) as error:
        raise invalid(param, f"is not audio that can be read: {error}") from None
    duration = len(samples) / source_rate
    if duration < shortest:
        raise invalid(param, f"lasts {duration:.2f} s; at least {shortest:g} s are needed")
    if duration > longest:
        raise invalid(param, f"lasts more than {longest:g} s")
    if not np.isfinite(samples).all():
        raise invalid(param, "holds samples that are not finite")
    if np.abs(samples).max() < SILENCE:
        raise invalid(param, "is silent")
    return np.clip(soxr.resample(samples, source_rate, rate, quality="HQ"), -1, 1)


def _read_mono(file: soundfile.SoundFile, limit: int) -> Array:
    """At most about ``limit`` samples: what the header says of the length may be wrong, or a trap."""
    blocks = [np.zeros(0, np.float32)]
    total = 0
    while total < limit:
        block = file.read(BLOCK, dtype="float32", always_2d=True)
        if not len(block):
            break
        blocks.append(block.mean(axis=1))
        total += len(block)
    return np.concatenate(blocks)
