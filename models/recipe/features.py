"""Features of sound that the training works on: causal log-mels, and spectral distances of several resolutions.

Shapes: B rows, n samples at 16 kHz, T steps of a hop.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common.messages import Array
from models.recipe.flite import SAMPLE_RATE

FRONT_END = ((1024, 80), (320, 48))  # window and number of mels: one sharp in frequency, one sharp in time
FRONT_END_MELS = sum(mels for _, mels in FRONT_END)
DISTANCES = ((1024, 80), (512, 64), (256, 32), (128, 16))


def mel_filters(mels: int, window: int, lowest: float = 40.0) -> Tensor:
    """Triangular filters even on the mel scale 2595 log10(1 + f / 700), each of sum 1. [mels, window / 2 + 1]"""
    return torch.tensor(_filters(mels, window, lowest))


@cache
def _filters(mels: int, window: int, lowest: float) -> Array:
    top = 2595 * math.log10(1 + SAMPLE_RATE / 2 / 700)
    edges = np.linspace(2595 * math.log10(1 + lowest / 700), top, mels + 2)
    hertz = 700 * (10 ** (edges / 2595) - 1)
    bins = np.linspace(0, SAMPLE_RATE / 2, window // 2 + 1)
    left, centre, right = hertz[:-2, None], hertz[1:-1, None], hertz[2:, None]
    filters = np.maximum(0, np.minimum((bins - left) / (centre - left), (right - bins) / (right - centre)))
    return (filters / np.maximum(filters.sum(1, keepdims=True), 1e-3)).astype(np.float32)


def magnitudes(sound: Tensor, window: int, hop: int) -> Tensor:
    """Absolute short-time spectrum without padding. [B, n] to [B, window / 2 + 1, T]"""
    spectrum = torch.stft(sound, window, hop, window, torch.hann_window(window), center=False, return_complex=True)
    return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()


def causal_log_mels(sound: Tensor, hop: int) -> Tensor:
    """Causal log-mels: step t depends on samples before ``(t + 1) * hop``. [B, n] to [B, FRONT_END_MELS, n / hop]"""
    parts = []
    for window, mels in FRONT_END:
        spectrum = magnitudes(F.pad(sound, (window - hop, 0)), window, hop)
        parts.append(torch.log10((mel_filters(mels, window) @ spectrum).clamp(min=3e-3)) * 0.8 + 0.6)
    return torch.cat(parts, 1)


def spectral_distance(made: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Distance of two sounds [B, n]: log-mels, log magnitudes and spectral convergence at four resolutions.

    Returns:
        the loss, and its log-mel part alone (natural logarithm, mean over resolutions).
    """
    loss, mel_part = made.new_zeros(()), made.new_zeros(())
    for window, mels in DISTANCES:
        floor = 2e-3 * math.sqrt(window)
        padding = (window // 2, window // 2)
        a, b = (magnitudes(F.pad(x, padding), window, window // 4) for x in (made, wanted))
        filters = mel_filters(mels, window, 0.0)
        mel = ((filters @ a + floor).log() - (filters @ b + floor).log()).abs().mean()
        magnitude = ((a + 2 * floor).log() - (b + 2 * floor).log()).abs().mean()
        convergence = ((a - b).flatten(1).norm(dim=1) / (b.flatten(1).norm(dim=1) + 0.5)).mean()
        loss = loss + mel + 0.5 * magnitude + 0.3 * convergence
        mel_part = mel_part + mel.detach() / len(DISTANCES)
    return loss, mel_part
