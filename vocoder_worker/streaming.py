"""Streaming state of causal layers, kept outside the layers: one tensor per layer, one row per stream.

A causal layer needs the last steps of its input again when the next chunk comes. Those steps are its state, and zeros
are the state of a stream that hasn't begun, since every causal layer of the codec pads its input with zeros on the
left. So one forward serves a chunk and a whole: a whole is a chunk that follows the zero state.

A batch is a set of streams that take part in one call, each with its own number of new frames, padded on the right to
the longest. Being causal, no layer lets padding reach a valid step; the state kept is what ends at each row's length.

Shapes: B rows, F frames of the longest row, L steps of state. A layer sees F * r steps, r being its steps per frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn


class CausalLayer(nn.Module):
    """A layer with state: the last steps that it passed to :meth:`StreamBatch.extend`.

    ``state_shape`` is the state of one stream; ``time_dim`` is where a batch, whose rows come first, has its steps.
    """

    state_shape: tuple[int, ...]
    time_dim: int


class StreamState:
    """State of ``slots`` streams for each causal layer inside ``stack``, initially zero."""

    def __init__(self, stack: nn.Module, slots: int, device: torch.device) -> None:
        self.tensors = {
            layer: torch.zeros(slots, *layer.state_shape, device=device)
            for layer in stack.modules()
            if isinstance(layer, CausalLayer)
        }
        self.device = device
        self.positions = np.zeros(slots, np.int64)  # frames so far; the host knows them without asking the device

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def reset(self, slots: Sequence[int]) -> None:
        """Reset these slots to the zero state."""
        if not slots:
            return
        rows = torch.tensor(slots, device=self.device)
        for tensor in self.tensors.values():
            tensor.index_fill_(0, rows, 0.0)
        self.positions[list(slots)] = 0

    def batch(self, slots: Sequence[int], frames: Sequence[int]) -> StreamBatch:
        """Begin a call in which the stream in ``slots[b]`` gets ``frames[b]`` new frames. Slots must be distinct."""
        rows = np.array([slots, frames, self.positions[list(slots)]])
        self.positions[list(slots)] += rows[1]
        return StreamBatch(self.tensors, torch.from_numpy(rows).to(self.device), list(frames))


class StreamBatch:
    """The streams of one call. Each layer of the stack must run exactly once on it."""

    def __init__(self, tensors: dict[CausalLayer, Tensor], rows: Tensor, frames: list[int]) -> None:
        self._tensors = tensors
        self._slots, self._frames, self._positions = rows  # int64 [B] each
        self._uniform = len(set(frames)) == 1
        self.width = max(frames)

    def extend(self, layer: CausalLayer, x: Tensor) -> Tensor:
        """Prepend a layer's state to its new steps ``x``, and keep the end of each row as the next state.

        Returns:
            ``x`` with L more steps on its left.
        """
        state = self._tensors[layer]
        dim = layer.time_dim
        length = state.shape[dim]
        if length == 0:
            return x
        joined = torch.cat([state.index_select(0, self._slots), x], dim)
        state.index_copy_(0, self._slots, self._tail(joined, length, dim))
        return joined

    def _tail(self, joined: Tensor, length: int, dim: int) -> Tensor:
        """Return the ``length`` steps up to each row's own last valid step."""
        steps = joined.shape[dim] - length
        if self._uniform:
            return joined.narrow(dim, steps, length)
        first = self._frames * (steps // self.width)
        index = first[:, None] + torch.arange(length, device=joined.device)
        shape = [1] * joined.dim()
        shape[0], shape[dim] = index.shape
        return torch.take_along_dim(joined, index.view(shape), dim)

    def starts(self, steps: int) -> Tensor:
        """Return the absolute position of each row's first new step, int64 [B], for a batch of ``steps`` steps."""
        return self._positions * (steps // self.width)
