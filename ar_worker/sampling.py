"""Filtering and drawing, row by row, and the noise that draws.

A draw takes the candidate with the largest ``p / -log(u)``, where u is uniform noise: that is a sample from p.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

TIE_BREAK = 1e-10  # logits closer than this per candidate are ordered by index, so that the order is never left open
LEAST_TEMPERATURE = 1e-5
LEAST_RANKS = 16
MOST_RANKS = 256

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))
_DRAWS = 2


class Uniforms(Protocol):
    """Where the uniform noise of a step's rows comes from."""

    def __call__(self, ids: Tensor, codebook: int, draw: int) -> Tensor:
        """Noise in (0, 1) for the candidates ``ids`` int64 [B, K] of a codebook, for its draw number ``draw``."""


class Ranked(NamedTuple):
    """The best K candidates of each row, best first."""

    ids: Tensor  # int64 [B, K], index into the logits
    logits: Tensor  # float32 [B, K], less the best one's
    mass: Tensor  # float32 [B, K], probability of this and all better ones at temperature 1; 0 for the best


class Filter(NamedTuple):
    """Parameters of a draw: [B, 1] or the same for all rows."""

    temperature: Tensor | float
    top_p: Tensor | float
    top_k: Tensor


def ranks_needed(top_k: int) -> int:
    """How many ranks to look at for this ``top_k``; results don't depend on the surplus."""
    return min(max(LEAST_RANKS, 1 << (top_k - 1).bit_length()), MOST_RANKS)


def rank(logits: Tensor, ranks: int) -> Ranked:
    """The ``ranks`` best of logits float32 [B, n], equal ones by index. Probabilities are taken over all n."""
    n = logits.shape[-1]
    order = torch.sub(logits, _counting(n, torch.float64, logits.device), alpha=TIE_BREAK)
    ids = order.topk(min(ranks, n), dim=-1).indices
    mass = torch.softmax(logits, -1).gather(-1, ids).cumsum(-1)
    mass[:, 0] = 0.0
    best = logits.gather(-1, ids)
    return Ranked(ids, best - best[:, :1], mass)


def weights(ranked: Ranked, params: Filter) -> Tensor:
    """Unnormalised probabilities float32 [B, K]: 0 for what the filter drops.

    Rank r (from 0) is dropped if the mass up to and with it exceeds top_p, or if r >= top_k; rank 0 always stays.
    The temperature acts on what is left.
    """
    index = _counting(ranked.ids.shape[-1], torch.int64, ranked.ids.device)
    kept = (ranked.mass <= params.top_p).logical_and_(index < params.top_k)
    return (ranked.logits / params.temperature).exp_().mul_(kept)


def draw(ranked: Ranked, params: Filter, uniform: Tensor) -> Tensor:
    """One index into the logits per row, int64 [B]. ``uniform`` [B, K]: the noise of the ranked candidates."""
    best = (weights(ranked, params) / uniform.log().neg_()).argmax(-1, keepdim=True)
    return ranked.ids.gather(-1, best)[:, 0]


@lru_cache(maxsize=64)
def _counting(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0, 1, ... n - 1."""
    return torch.arange(n, dtype=dtype, device=device)


def _mix(x: Tensor) -> Tensor:
    """Two rounds of splitmix64's finaliser on int64, with wrapping products and logical shifts; x is overwritten."""
    for shift, factor in _MIX:
        x.bitwise_xor_(_shift(x, shift)).mul_(factor)
    return x


def _shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


class Noise:
    """Uniform noise that is a pure function of (seed, frame, codebook, draw, candidate id), by hashing.

    Args:
        seeds: int64 [B].
        frames: int64 [B], the number of the frame each row draws.
        codebooks: how many codebooks a frame has.
    """

    def __init__(self, seeds: Tensor, frames: Tensor, codebooks: int) -> None:
        streams = torch.arange(1, codebooks * _DRAWS + 1, device=seeds.device)
        row = _mix(_mix(seeds + _GOLDEN) + frames * _GOLDEN)
        self._keys = _mix(row[:, None] + streams * _GOLDEN)  # [B, streams]

    def __call__(self, ids: Tensor, codebook: int, draw: int) -> Tensor:
        """float64 [B, K], of 52 random bits and a half, so never 0 or 1."""
        stream = codebook * _DRAWS + draw
        bits = _shift(_mix(torch.add(self._keys[:, stream : stream + 1], ids, alpha=_GOLDEN)), 12)
        return bits.double().add_(0.5).mul_(2.0**-52)
