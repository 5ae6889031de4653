"""Causal building blocks of the codec, with the published parameter names and weight norm folded.

Shapes: B rows, C channels, T steps; sound and features are [B, C, T].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vocoder_worker.dac_layers import Snake1d
from vocoder_worker.streaming import CausalLayer, StreamBatch


class Snake(Snake1d):
    """Snake activation of DAC: x + sin²(αx) / (α + 1e-9).

    Computed in place on one temporary. The scripted form makes five, and takes twice as long on a CPU.
    """

    def forward(self, x: Tensor) -> Tensor:
        squared_sine = (x * self.alpha).sin_().square_()
        return torch.addcmul(x, squared_sine, (self.alpha + 1e-9).reciprocal())


class CausalConv1d(CausalLayer):
    """Causal convolution: [B, in, T] to [B, out, T / stride]; T must be a multiple of the stride."""

    time_dim = 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int, stride: int = 1, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(in_channels, out_channels, kernel, stride, dilation=dilation, groups=groups)
        self.state_shape = (in_channels, (kernel - 1) * dilation + 1 - stride)

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        y: Tensor = self.conv(batch.extend(self, x))
        return y


class CausalConvTranspose1d(CausalLayer):
    """Causal transposed convolution, trimmed on the right: [B, in, T] to [B, out, T * stride].

    Step t affects only outputs from t * stride on. The state is the inputs that still reach into the next chunk, not
    the partial outputs: nothing is added twice.
    """

    time_dim = 2

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(in_channels, out_channels, kernel, stride)
        self.stride = stride
        self.overlap = -(-kernel // stride) - 1  # earlier inputs that an output depends on
        self.state_shape = (in_channels, self.overlap)

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        y: Tensor = self.conv(batch.extend(self, x))
        return y.narrow(2, self.overlap * self.stride, x.shape[2] * self.stride)


class Chain(nn.ModuleList):
    """Runs layers in sequence; streaming layers also get the batch of streams."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(layers)

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        for layer in self:
            x = layer(x) if isinstance(layer, Snake) else layer(x, batch)
        return x


class Stage(nn.Module):
    """A chain under the name ``block``, as in the published parameter names."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.block = Chain(*layers)

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        y: Tensor = self.block(x, batch)
        return y


class ResidualUnit(nn.Module):
    """Residual unit: x + conv1(snake(conv7(snake(x)))), where conv7 is dilated."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        wide = CausalConv1d(channels, channels, 7, dilation=dilation)
        self.block = Chain(Snake(channels), wide, Snake(channels), CausalConv1d(channels, channels, 1))

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        return x + self.block(x, batch)


def residual_units(channels: int) -> list[ResidualUnit]:
    """The three residual units of an encoder or decoder stage."""
    return [ResidualUnit(channels, dilation) for dilation in (1, 3, 9)]


class ConvNeXtBlock(nn.Module):
    """ConvNeXt block: x + γ · MLP(LayerNorm(depthwise causal conv(x))), with the MLP over channels."""

    def __init__(self, channels: int, mlp_ratio: int) -> None:
        super().__init__()
        self.dwconv = CausalConv1d(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, mlp_ratio * channels)
        self.pwconv2 = nn.Linear(mlp_ratio * channels, channels)
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        y = self.norm(self.dwconv(x, batch).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)
