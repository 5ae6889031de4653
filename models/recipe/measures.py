"""Measures of a sound: pitch, timbre, loudness, silence at its ends, clicks, and distance to another sound."""

from __future__ import annotations

import numpy as np
import pyloudnorm
import torch

from common.messages import Array
from models.recipe.features import magnitudes, mel_filters, spectral_distance

FRAME_SECONDS = 0.04
LOWEST, HIGHEST = 70.0, 300.0  # Hz
SILENCE = 10 ** (-45 / 20)
DECIBELS_PER_NEPER = 20 / np.log(10)


def pitch(sound: Array, sample_rate: int) -> float:
    """Median fundamental frequency of the voiced frames in Hz, by autocorrelation; 0 where none is voiced."""
    size = int(FRAME_SECONDS * sample_rate)
    frames = sound[: len(sound) // size * size].reshape(-1, size)
    frames = frames[np.sqrt((frames**2).mean(1)) > 0.3 * np.sqrt((sound**2).mean())]
    frames = frames - frames.mean(1, keepdims=True)
    spectrum = np.fft.rfft(frames, 2 * size)
    lags = np.fft.irfft(np.abs(spectrum) ** 2)[:, :size]
    low, high = int(sample_rate / HIGHEST), int(sample_rate / LOWEST)
    peaks = lags[:, low:high].argmax(1) + low
    strength = lags[np.arange(len(lags)), peaks] / np.maximum(lags[:, 0], 1e-9)
    voiced = peaks[strength > 0.5]
    return float(np.median(sample_rate / voiced)) if voiced.size else 0.0


def timbre(sound: Array) -> Array:
    """The mean spectrum of the louder half of a sound at 16 kHz, without its level: dB in mel bands, [40]."""
    window = torch.from_numpy(sound[None].astype(np.float32))
    mels = (mel_filters(40, 512) @ magnitudes(window, 512, 256))[0]
    loud = mels.sum(0) >= mels.sum(0).median()
    levels: Array = (20 * mels[:, loud].mean(1).log10()).numpy()
    return levels - levels.mean()


def loudness(sound: Array, sample_rate: int) -> float:
    """Integrated loudness in LUFS (ITU-R BS.1770-4)."""
    return float(pyloudnorm.Meter(sample_rate).integrated_loudness(sound.astype(np.float64)))


def end_silences(sound: Array, sample_rate: int) -> tuple[float, float]:
    """Seconds below -45 dBFS before the first louder sample and after the last."""
    loud = np.flatnonzero(np.abs(sound) > SILENCE)
    if not loud.size:
        return len(sound) / sample_rate, len(sound) / sample_rate
    return float(loud[0] / sample_rate), float((len(sound) - 1 - loud[-1]) / sample_rate)


def clicks(sound: Array) -> int:
    """Samples whose second difference stands far out of the speech around it: over 20 times the local mean."""
    jump = np.abs(np.diff(sound, 2))
    local = np.convolve(jump, np.full(801, 1 / 801), "same")
    return int(((jump > 20 * local) & (jump > 0.05)).sum())


def mel_distance(made: Array, wanted: Array) -> float:
    """Mean absolute difference of log-mels in dB over four resolutions."""
    length = min(len(made), len(wanted))
    pair = (torch.from_numpy(x[None, :length].astype(np.float32)) for x in (made, wanted))
    return float(spectral_distance(*pair)[1]) * DECIBELS_PER_NEPER
