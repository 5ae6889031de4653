"""Row policy: keeps the result of a row in a matrix product independent of the other rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CPU_ROWS_PER_THREAD = 4  # with fewer rows per thread a CPU matrix product takes another path and rounds differently
DETERMINISTIC_TILE = 64
HALF_TILE = 16  # of bf16 on a CPU, whose products are not the same for every number of rows
FRAME_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class RowPolicy:
    """Rows of a step are padded to a multiple of ``multiple``; products run on ``tile`` rows at a time (None: all).

    On the CPU in fp32 a row comes out bit-equal in every product of at least four rows per thread. In bf16, and on
    CUDA, the kernel and with it the order of sums may change with the row count; tiles of one size keep it the same.
    """

    multiple: int
    tile: int | None = None

    @classmethod
    def choose(cls, device: torch.device, threads: int, deterministic: bool, dtype: torch.dtype) -> RowPolicy:
        """The policy of a device: its threads are PyTorch's, ``dtype`` is that of weights and rows."""
        if device.type == "cpu" and dtype != torch.float32:
            return cls(HALF_TILE, HALF_TILE)
        if device.type == "cpu":
            return cls(CPU_ROWS_PER_THREAD * threads)
        return cls(DETERMINISTIC_TILE, DETERMINISTIC_TILE) if deterministic else cls(1)

    def buckets(self, slots: int) -> list[int]:
        """The sizes of all frames of up to ``slots`` rows."""
        return sorted({self.bucket(rows) for rows in range(1, slots + 1)})

    def bucket(self, rows: int) -> int:
        """Rows of the frame in which ``rows`` rows are drawn."""
        if self.multiple > 1:
            return -(-rows // self.multiple) * self.multiple
        return next((size for size in FRAME_BUCKETS if size >= rows), -(-rows // FRAME_BUCKETS[-1]) * FRAME_BUCKETS[-1])

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Multiply x [rows, in] by weight [in, out] and add bias [out]: [rows, out]."""
        if self.tile is None:
            return _product(x, weight, bias)
        return torch.cat([_product(part, weight, bias) for part in x.split(self.tile)])


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)
