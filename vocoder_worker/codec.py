"""The codec: a decoder from codes to audio and an encoder from audio to codes, both causal and streaming.

The module trees carry the parameter names of the published ``codec.pth`` (weight norm folded), each half its own.

Shapes: B rows, F frames, ten codebooks, ``latent_dim`` channels, ``hop`` samples per frame.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.checkpoint import CodecConfig, WindowTransformerConfig
from common.messages import Array
from vocoder_worker.dac_layers import ResidualVectorQuantize
from vocoder_worker.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    Chain,
    ConvNeXtBlock,
    Snake,
    Stage,
    residual_units,
)
from vocoder_worker.streaming import StreamBatch
from vocoder_worker.transformer import WindowTransformer


def _transformer(config: CodecConfig, stack: WindowTransformerConfig) -> WindowTransformer:
    return WindowTransformer(stack, config.rope_base, config.norm_eps)


# Codes to sound -------------------------------------------------------------------------------------------------------


class Codebook(nn.Module):
    """A codebook, with the projection of its rows to the latent space."""

    def __init__(self, size: int, dim: int, latent_dim: int) -> None:
        super().__init__()
        self.codebook = nn.Embedding(size, dim)
        self.out_proj = nn.Conv1d(dim, latent_dim, 1)

    def projected(self) -> Tensor:
        """Return all rows, projected: [size, latent_dim]."""
        return F.linear(self.codebook.weight, self.out_proj.weight.squeeze(2), self.out_proj.bias)


class Codebooks(nn.Module):
    """Several codebooks of equal size."""

    def __init__(self, config: CodecConfig, sizes: list[int]) -> None:
        super().__init__()
        dim = config.quantizer.codebook_dim
        self.quantizers = nn.ModuleList(Codebook(size, dim, config.latent_dim) for size in sizes)


class Dequantizer(nn.Module):
    """Turns codes into the decoder's input, four steps per frame (the product of the downsampling factors)."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        latent, quantizer = config.latent_dim, config.quantizer
        self.semantic_quantizer = Codebooks(config, config.codebook_sizes[:1])
        self.quantizer = Codebooks(config, config.codebook_sizes[1:])
        self.post_module = _transformer(config, quantizer.post_transformer)
        self.upsample = Chain(
            *(
                Chain(CausalConvTranspose1d(latent, latent, f, f), ConvNeXtBlock(latent, quantizer.convnext_mlp_ratio))
                for f in reversed(quantizer.downsample_factor)
            )
        )

    def table(self) -> Tensor:
        """Return the projected rows of all codebooks, stacked: [sum of sizes, latent_dim]."""
        codebooks = [*self.semantic_quantizer.quantizers, *self.quantizer.quantizers]
        return torch.cat([codebook.projected() for codebook in codebooks])


def _decoder_stage(in_channels: int, out_channels: int, rate: int) -> Stage:
    """Decoder stage: upsampling by ``rate``, then three residual units."""
    upsampling = CausalConvTranspose1d(in_channels, out_channels, 2 * rate, rate)
    return Stage(Snake(in_channels), upsampling, *residual_units(out_channels))


class WaveDecoder(nn.Module):
    """Turns the latent into audio within [-1, 1]: [B, latent_dim, T] to [B, 1, T * product of the rates]."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        widths = [config.decoder_dim >> i for i in range(len(config.decoder_rates) + 1)]
        stages = map(_decoder_stage, widths, widths[1:], config.decoder_rates)
        first, last = CausalConv1d(config.latent_dim, widths[0], 7), CausalConv1d(widths[-1], 1, 7)
        self.model = Chain(first, *stages, Snake(widths[-1]), last)

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        return torch.tanh(self.model(x, batch))


class CodecDecoder(nn.Module):
    """Decodes codes to audio. Call :meth:`tabulate` once after the weights are loaded."""

    table: Tensor  # float32 [sum of codebook sizes, latent_dim]

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.quantizer = Dequantizer(config)
        self.decoder = WaveDecoder(config)
        sizes = np.array(config.codebook_sizes)
        self._last_code = sizes - 1
        self._first_row = np.cumsum(sizes) - sizes

    def tabulate(self) -> None:
        """Project all codebook rows in advance, so that a lookup is one sum of table rows."""
        self.register_buffer("table", self.quantizer.table(), persistent=False)
        del self.quantizer.semantic_quantizer, self.quantizer.quantizer

    def table_rows(self, codes: Array) -> Array:
        """Return the table rows, int64 [..., 10], of sampled codes [..., 10]. Codes out of range are clamped."""
        rows: Array = np.clip(codes, 0, self._last_code) + self._first_row
        return rows

    def latent(self, rows: Tensor) -> Tensor:
        """Sum projected codebook rows: int64 [B, F, 10] to float32 [B, latent_dim, F]."""
        summed = F.embedding_bag(rows.flatten(0, 1), self.table, mode="sum")
        return summed.unflatten(0, rows.shape[:2]).transpose(1, 2)

    def forward(self, rows: Tensor, batch: StreamBatch) -> Tensor:
        """Decode table rows int64 [B, F, 10] to audio float32 [B, F * hop]."""
        features = self.quantizer.post_module(self.latent(rows), batch)
        sound: Tensor = self.decoder(self.quantizer.upsample(features, batch), batch)
        return sound.squeeze(1)


# Sound to codes -------------------------------------------------------------------------------------------------------


def _encoder_stage(config: CodecConfig, index: int) -> Stage:
    """Encoder stage: three residual units, then downsampling. The last stage may end in a transformer."""
    channels, rate = config.encoder_dim << index, config.encoder_rates[index]
    layers: list[nn.Module] = [
        *residual_units(channels),
        Snake(channels),
        CausalConv1d(channels, 2 * channels, 2 * rate, rate),
    ]
    if index == len(config.encoder_rates) - 1 and config.encoder_transformer is not None:
        layers.append(_transformer(config, config.encoder_transformer))
    return Stage(*layers)


def _wave_encoder(config: CodecConfig) -> Stage:
    """Turns audio into the latent: [B, 1, n] to [B, latent_dim, n / product of the rates]."""
    stages = len(config.encoder_rates)
    width = config.encoder_dim << stages
    return Stage(
        CausalConv1d(1, config.encoder_dim, 7),
        *(_encoder_stage(config, index) for index in range(stages)),
        Snake(width),
        CausalConv1d(width, config.latent_dim, 3),
    )


def _residual_quantizer(config: CodecConfig, sizes: list[int]) -> ResidualVectorQuantize:
    """Residual vector quantizer of DAC, with plain convolutions in place of weight-normed ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # dac uses torch's older weight norm
        quantizer = ResidualVectorQuantize(config.latent_dim, len(sizes), sizes[0], config.quantizer.codebook_dim)
    for codebook in quantizer.quantizers:
        nn.utils.remove_weight_norm(codebook.in_proj)
        nn.utils.remove_weight_norm(codebook.out_proj)
    return quantizer


class Quantizer(nn.Module):
    """Quantizes the latent: [B, latent_dim, T] to int64 [B, 10, T / product of the downsampling factors]."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        latent, quantizer = config.latent_dim, config.quantizer
        self.downsample = Chain(
            *(
                Chain(CausalConv1d(latent, latent, f, f), ConvNeXtBlock(latent, quantizer.convnext_mlp_ratio))
                for f in quantizer.downsample_factor
            )
        )
        self.pre_module = _transformer(config, quantizer.pre_transformer)
        self.semantic_quantizer = _residual_quantizer(config, config.codebook_sizes[:1])
        self.quantizer = _residual_quantizer(config, config.codebook_sizes[1:])

    def nearest_codes(self, z: Tensor) -> Tensor:
        """Return the semantic code, then nine codes of its residual: float32 [B, latent_dim, F] to int64 [B, 10, F]."""
        semantic, first, *_ = self.semantic_quantizer(z)
        _, rest, *_ = self.quantizer(z - semantic)
        return torch.cat([first, rest], 1)

    def forward(self, x: Tensor, batch: StreamBatch) -> Tensor:
        return self.nearest_codes(self.pre_module(self.downsample(x, batch), batch))


class CodecEncoder(nn.Module):
    """Encodes audio float32 [B, 1, F * hop] to codes int64 [B, 10, F]."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.encoder = _wave_encoder(config)
        self.quantizer = Quantizer(config)

    def forward(self, sound: Tensor, batch: StreamBatch) -> Tensor:
        codes: Tensor = self.quantizer(self.encoder(sound, batch), batch)
        return codes
