"""Inputs of the kernels: random, with junk wherever nothing may be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ar_worker.ops import FrameTables, HeadNorm, Ops
from ar_worker.sampling import Filter, FrameParams, Noise, rank_limits

PAGE = 16
EPS = 1e-6


@dataclass(frozen=True)
class Geometry:
    """Shapes of the cases; those of a stack."""

    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    codebooks: int
    codes: int


SMALL = Geometry(dim=96, heads=8, kv_heads=2, head_dim=32, inner=160, codebooks=10, codes=256)
S2_PRO = Geometry(dim=2560, heads=32, kv_heads=8, head_dim=128, inner=9728, codebooks=10, codes=4096)


class Maker:
    """Random tensors of a geometry, type and device, the same for the same seed."""

    def __init__(self, geometry: Geometry, dtype: torch.dtype, device: torch.device, seed: int = 0) -> None:
        self.geometry, self.dtype, self.device = geometry, dtype, device
        self._random = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Standard normal."""
        return torch.randn(shape, generator=self._random).to(self.device, dtype or self.dtype)

    def integers(self, high: int, *shape: int) -> Tensor:
        """int64 below ``high``."""
        return torch.randint(high, shape, generator=self._random).to(self.device)

    def permuted(self, n: int) -> Tensor:
        """A permutation, int64 [n]."""
        return torch.randperm(n, generator=self._random).to(self.device)

    def head_norm(self, rows: int, heads: int) -> HeadNorm:
        """Norm and rotation of ``rows`` rows, each pair by an angle of its own."""
        angles = self.normal(rows, 1, self.geometry.head_dim // 2, dtype=torch.float32)
        rotation = torch.polar(torch.ones_like(angles), angles)
        return HeadNorm(self.normal(heads, self.geometry.head_dim, dtype=torch.float32), EPS, rotation)

    def tables(self, scaled: bool) -> FrameTables:
        """Embedding tables whose semantic tokens are 50 to 149, of 200."""
        g = self.geometry
        offsets = torch.arange(g.codebooks, device=self.device) * g.codes
        codes = self.normal(g.codebooks * g.codes, g.dim)
        return FrameTables(self.normal(200, g.dim), codes, offsets, (50, 149), scaled)

    def params(self, rows: int, ranks: int) -> FrameParams:
        """Sampling parameters that differ from row to row; some rows are greedy, and all consult their window."""
        temperature = torch.rand(rows, 3, generator=self._random).to(self.device) + 0.3
        top_k = self.integers(ranks, rows, 3, 1) + 1
        top_p = torch.rand(rows, 3, 1, generator=self._random).to(self.device) * 0.5 + 0.5
        limits = rank_limits(top_p, top_k, ranks)
        checked = self.integers(2, rows).bool()
        window = self.integers(self.geometry.codes, rows, 10)
        return FrameParams(
            Filter(temperature[:, :2, None], limits[:, :2]),
            Filter(temperature[:, 2:], limits[:, 2]),
            window,
            checked,
            ranks,
        )

    def noise(self, rows: int) -> Noise:
        """Noise of random seeds."""
        return Noise(self.integers(1 << 62, rows), self.integers(1000, rows), self.geometry.codebooks)


def _embed(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    frames = torch.cat([make.integers(200, rows, 1), make.integers(make.geometry.codes, rows, 10)], 1)
    return [(frames, make.tables(scaled)) for scaled in (True, False)]


def _add_rms_norm(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    dim = make.geometry.dim
    strided = make.normal(2 * rows, dim)[1::2]
    return [
        (make.normal(rows, dim), make.normal(rows, dim), make.normal(dim), EPS),
        (strided, None, make.normal(dim), EPS),
    ]


def _qk_norm_rope_write(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    g = make.geometry
    heads = g.heads + 2 * g.kv_heads
    qkv, junk = make.normal(rows, heads, g.head_dim), make.normal(rows, heads, g.head_dim)
    junk[0, -1, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf], device=make.device)
    norm = make.head_norm(rows, g.heads + g.kv_heads)
    kv = make.normal(2 * g.kv_heads, rows + 5, g.head_dim)
    writes = make.permuted(rows + 5)[:rows]
    return [(qkv, norm, kv, writes), (junk, norm._replace(weight=None), kv, writes)]


def paged_case(make: Maker, lengths: list[int], shared: bool = False) -> tuple[Any, ...]:
    """Arguments of ``paged_decode``: permuted pages, junk in each position that no row attends to.

    ``shared``: the first row's first page belongs to all rows.
    """
    g, rows = make.geometry, len(lengths)
    counts = [-(-n // PAGE) for n in lengths]
    total = sum(counts) + 1
    order = make.permuted(total - 1).tolist()
    pages = torch.full((rows + 3, max(counts) + 2), total - 1, dtype=torch.int32)
    kv = torch.full((2 * g.kv_heads, total * PAGE, g.head_dim), torch.nan, dtype=make.dtype, device=make.device)
    slots = make.permuted(rows + 3)[:rows]
    for row, (count, slot) in enumerate(zip(counts, slots.tolist(), strict=True)):
        owned = [order.pop() for _ in range(count)]
        if shared and row and lengths[row] >= PAGE and lengths[0] >= PAGE:
            owned[0] = int(pages[slots[0], 0])
        pages[slot, :count] = torch.tensor(owned, dtype=torch.int32)
        at = torch.arange(lengths[row])
        written = (torch.tensor(owned)[at // PAGE] * PAGE + at % PAGE).to(make.device)
        kv[:, written] = make.normal(2 * g.kv_heads, lengths[row], g.head_dim)
    qkv = make.normal(rows, g.heads + 2 * g.kv_heads, g.head_dim)
    positions = torch.tensor(lengths, device=make.device) - 1
    return qkv[:, : g.heads], kv, pages.to(make.device), slots, positions, PAGE


def _paged_decode(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    lengths = [1, 15, 16, 17, 63, 64, 65, 700]
    return [paged_case(make, lengths), paged_case(make, lengths[::-1], shared=True)]


def _swiglu(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    return [(make.normal(rows, 2 * make.geometry.inner),)]


def _fast_attention(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    g = make.geometry
    cases = []
    for start, length in ((0, 2), (2, 1), (g.codebooks - 1, 1)):
        qkv = make.normal(rows * length, g.heads + 2 * g.kv_heads, g.head_dim)
        kv = make.normal(rows, 2 * g.kv_heads, g.codebooks, g.head_dim)
        kv[:, :, start:] = torch.nan
        norm = make.head_norm(rows * length if length > 1 else 1, g.heads + g.kv_heads)
        cases.append((qkv, norm, kv, start))
    return cases


def _draw_token(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    codes = make.geometry.codes
    ids = torch.arange(codes + 1, device=make.device)  # so that the windows repeat them
    return [
        (make.normal(rows, codes + 1) * spread, ids, codes, make.params(rows, 32), make.noise(rows))
        for spread in (0.3, 3.0)
    ]


def _draw_code(make: Maker, rows: int) -> list[tuple[Any, ...]]:
    ties = make.normal(rows, make.geometry.codes).round()
    cases: list[tuple[Any, ...]] = [(ties, 1, make.params(rows, 32), make.noise(rows))]
    most = min(256, make.geometry.codes)
    return [*cases, (make.normal(rows, make.geometry.codes), 9, make.params(rows, most), make.noise(rows))]


CASES: dict[str, Callable[[Maker, int], list[tuple[Any, ...]]]] = {
    "embed_frame": _embed,
    "add_rms_norm": _add_rms_norm,
    "qk_norm_rope_write": _qk_norm_rope_write,
    "paged_decode": _paged_decode,
    "swiglu": _swiglu,
    "fast_attention": _fast_attention,
    "draw_token": _draw_token,
    "draw_code": _draw_code,
}


@dataclass(frozen=True)
class Difference:
    """``error``: greatest difference, relative to the greatest value; ``same``: share of equal ids, for draws."""

    error: float
    same: float


def run_twins(op: str, kernels: Ops, eager: Ops, arguments: tuple[Any, ...]) -> list[tuple[Tensor, Tensor]]:
    """Results of a kernel and of its twin over copies of the arguments, with what they wrote in place."""
    pairs = []
    for ops in (kernels, eager):
        copies = _copied(arguments)
        if ops is eager and op in ("paged_decode", "fast_attention"):
            _quiet(copies)
        result = getattr(ops, op)(*copies)
        outputs = list(result) if isinstance(result, tuple) else [] if result is None else [result]
        if op == "qk_norm_rope_write":
            outputs += [copies[0][:, : -copies[2].shape[0] // 2], copies[2]]
        if op == "fast_attention":
            kv, end = copies[2], copies[3] + len(copies[0]) // len(copies[2])
            outputs.append(kv[:, :, :end])
        pairs.append(outputs)
    return list(zip(*pairs, strict=True))


def compare(pairs: list[tuple[Tensor, Tensor]]) -> Difference:
    """Measure the distance of the kernel's results from the twin's."""
    worst, same, ids = 0.0, 0, 0
    for kernel, twin in pairs:
        if kernel.dtype == torch.int64:
            same, ids = same + int((kernel == twin).sum()), ids + twin.numel()
            continue
        scale = float(twin.float().abs().max()) or 1.0
        error = float((kernel.float() - twin.float()).abs().max()) / scale
        worst = max(worst, error if error == error else float("inf"))
    return Difference(worst, same / ids if ids else 1.0)


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.clone() if isinstance(value, Tensor) and value.is_contiguous() else value for value in arguments)


def _quiet(arguments: tuple[Any, ...]) -> None:
    """The eager twins rely on a pool that holds no NaN; the kernels do not."""
    for value in arguments[1:]:
        if isinstance(value, Tensor) and value.is_floating_point():
            value.nan_to_num_(0.0)
