"""Sampling: filter and draw, row by row, with noise from a hash.

A draw takes the candidate with the largest ``log(u) / p``, where u is uniform noise: that is a sample from p.
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
    """Source of the uniform noise of a step's rows."""

    def main(self, ids: Tensor) -> Tensor:
        """Noise in (0, 1) for both draws of the main token from candidates ``ids`` int64 [B, K]: [B, 2, K]."""

    def code(self, ids: Tensor, codebook: int) -> Tensor:
        """Noise in (0, 1) for the draw of a codebook's code from candidates ``ids`` int64 [B, K]: [B, K]."""


class Ranked(NamedTuple):
    """The best K candidates of each row, best first."""

    ids: Tensor  # int64 [B, K], index into the logits
    logits: Tensor  # float32 [B, K], less the best one's
    mass: Tensor  # float32 [B, K], probability of this and all better ones at temperature 1


class Filter(NamedTuple):
    """Parameters of a draw. A candidate is kept if its mass is within its rank's limit, see :func:`rank_limits`."""

    temperature: Tensor | float  # [..., 1], or the same for all rows
    limits: Tensor  # float32 [..., K] or longer, or of one row for all


class FrameParams(NamedTuple):
    """Sampling of a frame, one row each."""

    main: Filter  # [B, 2, ...], of the main token and of its second draw where it repeats itself
    code: Filter  # [B, ...]
    window: Tensor  # int64 [B, 10], recent main tokens
    checked: Tensor  # bool [B], whether the window is consulted
    ranks: int  # candidates to look at, see ranks_needed


def ranks_needed(top_k: int) -> int:
    """Ranks to look at for this ``top_k``; results don't depend on the surplus."""
    return min(max(LEAST_RANKS, 1 << (top_k - 1).bit_length()), MOST_RANKS)


def rank_limits(top_p: Tensor, top_k: Tensor, ranks: int) -> Tensor:
    """Largest mass with which each rank (from 0) is kept: float32 [..., ranks] of top_p and top_k [..., 1].

    Rank r is dropped if the mass up to and with it exceeds top_p, or if r >= top_k; rank 0 always stays.
    """
    index = torch.arange(ranks, device=top_k.device)
    kept = torch.where(index < top_k, top_p, -1.0)
    kept[..., 0] = torch.inf
    return kept


def rank(logits: Tensor, ranks: int) -> Ranked:
    """The ``ranks`` best of logits float32 [B, n], equal ones by index. Probabilities are taken over all n."""
    n = logits.shape[-1]
    order = torch.sub(logits, _counting(n, logits.device), alpha=TIE_BREAK)
    ids = order.topk(min(ranks, n), dim=-1).indices
    mass = torch.softmax(logits, -1).gather(-1, ids).cumsum(-1)
    best = logits.gather(-1, ids)
    return Ranked(ids, best - best[:, :1], mass)


def weights(ranked: Ranked, params: Filter) -> Tensor:
    """Unnormalised probabilities float32 [..., K]: 0 for what the filter drops. The temperature acts on the rest."""
    kept = ranked.mass <= params.limits[..., : ranked.mass.shape[-1]]
    return (ranked.logits / params.temperature).exp_().mul_(kept)


def draw(ranked: Ranked, params: Filter, uniform: Tensor) -> Tensor:
    """One of the ranked ids per row, int64 [...]. ``uniform`` [..., K]: the noise of the candidates."""
    best = uniform.log().div_(weights(ranked, params)).argmax(-1, keepdim=True)
    return ranked.ids.gather(-1, best).squeeze(-1)


def draw_token(logits: Tensor, ids: Tensor, im_end_id: int, params: FrameParams, uniforms: Uniforms) -> Tensor:
    """The main token of each row, int64 [B], from candidate logits [B, n] of the tokens ``ids`` [n].

    A semantic token that stands in the window is replaced by a second draw, which is not checked.
    """
    ranked = rank(logits.float(), params.ranks)
    tokens = ids.take(ranked.ids)
    twice = Ranked(tokens[:, None].expand(-1, 2, -1), ranked.logits[:, None], ranked.mass[:, None])
    token, other = draw(twice, params.main, uniforms.main(tokens)).unbind(1)
    repeated = (params.window == token[:, None]).any(1)
    repeated.logical_and_(params.checked).logical_and_(token != im_end_id)
    return torch.where(repeated, other, token)


def draw_code(logits: Tensor, codebook: int, params: FrameParams, uniforms: Uniforms) -> Tensor:
    """The code of each row for a codebook from 1 on, int64 [B], from logits [B, codebook_size]."""
    ranked = rank(logits.float(), params.ranks)
    return draw(ranked, params.code, uniforms.code(ranked.ids, codebook))


@lru_cache(maxsize=64)
def _counting(n: int, device: torch.device) -> Tensor:
    """0, 1, ... n - 1 as float64."""
    return torch.arange(n, dtype=torch.float64, device=device)


@lru_cache(maxsize=8)
def _stream_offsets(count: int, device: torch.device) -> Tensor:
    """Multiples of the golden ratio 1 to ``count``, wrapped to int64."""
    return torch.arange(1, count + 1, device=device) * _GOLDEN


@lru_cache(maxsize=8)
def _half_step(device: torch.device) -> Tensor:
    return torch.full((1,), 2.0**-53, dtype=torch.float64, device=device)


def _mix(x: Tensor) -> Tensor:
    """Two rounds of splitmix64's finaliser on int64, with wrapping products and logical shifts; x is overwritten."""
    for shift, factor in _MIX:
        x.bitwise_xor_(_shift(x, shift)).mul_(factor)
    return x


def _shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mixed_seed(seed: int) -> int:
    """The seed of a request as :class:`Noise` takes it: hashed, as a signed 64-bit number."""
    x = (seed + _GOLDEN) % (1 << 64)
    for shift, factor in _MIX:
        x = (x ^ (x >> shift)) * factor % (1 << 64)
    return x - (1 << 64) if x >> 63 else x


class Noise:
    """Uniform noise that is a pure function of (seed, frame, codebook, draw, candidate id), by hashing.

    Args:
        seeds: int64 [B], from :func:`mixed_seed`.
        frames: int64 [B], the number of the frame each row draws.
        codebooks: how many codebooks a frame has.
    """

    def __init__(self, seeds: Tensor, frames: Tensor, codebooks: int) -> None:
        offsets = _stream_offsets(codebooks * _DRAWS, seeds.device)
        row = _mix(torch.add(seeds, frames, alpha=_GOLDEN))
        self.keys = _mix(row[:, None] + offsets)
        """int64 [B, 2 * codebooks], of each codebook's draws."""
        self._columns = self.keys.split(1, 1)

    def main(self, ids: Tensor) -> Tensor:
        """See :class:`Uniforms`."""
        return self._uniform(self.keys[:, :_DRAWS, None], ids[:, None])

    def code(self, ids: Tensor, codebook: int) -> Tensor:
        """See :class:`Uniforms`."""
        return self._uniform(self._columns[codebook * _DRAWS], ids)

    @staticmethod
    def _uniform(keys: Tensor, ids: Tensor) -> Tensor:
        """float64, of 52 random bits and a half, so never 0 or 1."""
        bits = _shift(_mix(torch.add(keys, ids, alpha=_GOLDEN)), 12)
        return torch.add(_half_step(ids.device), bits, alpha=2.0**-52)
