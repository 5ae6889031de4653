"""The input of a step: every host array in one buffer, which reaches the device by one copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from common.messages import Array

Put: TypeAlias = Callable[[Array], Tensor]
"""Gives an array to the step: the tensor on the device that will hold it once the inputs are sent."""

ALIGNMENT = 16  # bytes


class StepInputs:
    """Packs arrays into a host buffer; their tensors are views of the buffer's copy on the device.

    On a CPU both are the same memory.
    """

    def __init__(self, host: Tensor, device: Tensor) -> None:
        """``host`` and ``device``: uint8, of one size."""
        self._host, self._device, self._used = host, device, 0
        self._bytes = host.numpy()

    def begin(self) -> None:
        """Forget the step before."""
        self._used = 0

    def put(self, array: Array) -> Tensor:
        """See :data:`Put`.

        Raises:
            ValueError: the buffer is full.
        """
        start, end = self._used, self._used + array.nbytes
        if end > self._bytes.size:
            raise ValueError(f"inputs of a step of more than {self._bytes.size} bytes")
        self._bytes[start:end] = np.ascontiguousarray(array).view(np.uint8).ravel() if array.size else ()
        self._used = -(-end // ALIGNMENT) * ALIGNMENT
        return self._device[start:end].view(torch_dtype(array)).view(array.shape)

    @property
    def used(self) -> tuple[Tensor, Tensor]:
        """Host and device bytes that the step has filled."""
        return self._host[: self._used], self._device[: self._used]


def torch_dtype(array: Array) -> torch.dtype:
    """The type of a tensor with this array's contents."""
    return {"i": {8: torch.int64, 4: torch.int32}, "f": {4: torch.float32}, "b": {1: torch.bool}}[array.dtype.kind][
        array.dtype.itemsize
    ]
