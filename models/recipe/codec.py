"""The codec in training: the modules of the vocoder worker, run over whole rows from the zero state."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.checkpoint import CodecConfig, QuantizerConfig, WindowTransformerConfig
from models.recipe.features import FRONT_END_MELS, causal_log_mels
from models.recipe.flite import PHONES, SAMPLE_RATE
from vocoder_worker.codec import CodecDecoder, CodecEncoder
from vocoder_worker.layers import CausalConv1d, ConvNeXtBlock
from vocoder_worker.streaming import CausalLayer, StreamBatch

CODES = 512
LATENTS_PER_FRAME = 4
_DEAD = 0.03  # a code used less than this share of its even share is placed anew


def _transformer(layers: int) -> WindowTransformerConfig:
    return WindowTransformerConfig(
        n_layer=layers, dim=192, n_head=3, head_dim=64, intermediate_size=512, window_size=16
    )


CODEC = CodecConfig(
    sample_rate=SAMPLE_RATE,
    encoder_dim=12,
    encoder_rates=[4, 5, 5, 2],
    latent_dim=192,
    encoder_transformer=None,
    decoder_dim=256,
    decoder_rates=[2, 5, 5, 4],
    quantizer=QuantizerConfig(
        semantic_codebook_size=CODES,
        residual_codebook_size=CODES,
        residual_codebooks=9,
        codebook_dim=8,
        downsample_factor=[2, 2],
        convnext_mlp_ratio=2,
        pre_transformer=_transformer(1),
        post_transformer=_transformer(3),
    ),
    rope_base=10000.0,
    norm_eps=1e-5,
)
LATENT_HOP = CODEC.hop // LATENTS_PER_FRAME  # samples


class WholeRows(StreamBatch):
    """A call in which every row starts from the zero state and keeps none."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def extend(self, layer: CausalLayer, x: Tensor) -> Tensor:
        shape = list(x.shape)
        shape[layer.time_dim] = layer.state_shape[layer.time_dim - 1]
        return torch.cat([x.new_zeros(shape), x], layer.time_dim)

    def starts(self, steps: int) -> Tensor:
        return torch.zeros(self._rows, dtype=torch.int64)


class FrontEnd(nn.Module):
    """Front end that maps sound to latents through log-mels. The encoder later learns the same from samples.

    Training the quantizer behind it needs no convolution at 16 kHz. [B, n] to [B, latent_dim, n / LATENT_HOP]
    """

    def __init__(self) -> None:
        super().__init__()
        latent = CODEC.latent_dim
        self.input = CausalConv1d(FRONT_END_MELS, latent, 3)
        self.blocks = nn.ModuleList(ConvNeXtBlock(latent, 2) for _ in range(2))
        self.output = nn.Conv1d(latent, latent, 1)

    def forward(self, mels: Tensor, batch: StreamBatch) -> Tensor:
        x = self.input(mels, batch)
        for block in self.blocks:
            x = block(x, batch)
        y: Tensor = self.output(x)
        return y


class Codec(nn.Module):
    """Both halves of the codec, plus the front end, mel head and phone head that only training needs."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = CodecEncoder(CODEC), CodecDecoder(CODEC)
        self.front_end = FrontEnd()
        self.mel_head = CausalConv1d(CODEC.latent_dim, FRONT_END_MELS, 3)
        self.phone_head = nn.Linear(CODEC.latent_dim, LATENTS_PER_FRAME * len(PHONES))
        for name, parameter in self.named_parameters():
            if name.endswith("gamma"):
                nn.init.constant_(parameter, 0.1)

    def latent(self, mels: Tensor, batch: StreamBatch) -> Tensor:
        """Maps log-mels to the latents that are quantized. [B, FRONT_END_MELS, 4 F] to [B, latent_dim, F]"""
        return self.pooled(self.front_end(mels, batch), batch)

    def pooled(self, x: Tensor, batch: StreamBatch) -> Tensor:
        """[B, latent_dim, 4 F] to [B, latent_dim, F]"""
        quantizer = self.encoder.quantizer
        y: Tensor = quantizer.pre_module(quantizer.downsample(x, batch), batch)
        return y

    def encode(self, sound: Tensor) -> Tensor:
        """Encodes sound through the front end. [B, F * hop] to int64 [B, 10, F]"""
        batch = WholeRows(len(sound))
        return self.encoder.quantizer.nearest_codes(self.latent(causal_log_mels(sound, LATENT_HOP), batch))

    def dequantized(self, codes: Tensor) -> Tensor:
        """int64 [B, 10, F] to [B, latent_dim, F]"""
        quantizers = [
            *self.encoder.quantizer.semantic_quantizer.quantizers,
            *self.encoder.quantizer.quantizer.quantizers,
        ]
        rows = [q.out_proj(q.codebook(codes[:, i]).transpose(1, 2)) for i, q in enumerate(quantizers)]
        return torch.stack(rows).sum(0)

    def expanded(self, quantized: Tensor, batch: StreamBatch) -> Tensor:
        """[B, latent_dim, F] to [B, latent_dim, 4 F], the input of the wave decoder."""
        half = self.decoder.quantizer
        y: Tensor = half.upsample(half.post_module(quantized, batch), batch)
        return y


class CodeUsage:
    """Moves unused codes to encodings of the current batch."""

    def __init__(self, codec: Codec) -> None:
        quantizer = codec.encoder.quantizer
        self._books = [q.codebook for q in (*quantizer.semantic_quantizer.quantizers, *quantizer.quantizer.quantizers)]
        self._usage = torch.ones(len(self._books), CODES)

    @torch.no_grad()
    def update(self, codes: Tensor, encodings: Tensor) -> Tensor:
        """codes [B, 10, F]; encodings [B, 10 * codebook_dim, F]. The share of codes in use, over all books."""
        for index, (book, z) in enumerate(zip(self._books, encodings.chunk(len(self._books), 1), strict=True)):
            drawn = codes[:, index].flatten()
            counted = torch.bincount(drawn, minlength=CODES) * (CODES / drawn.numel())
            self._usage[index].mul_(0.98).add_(counted, alpha=0.02)
            dead = (self._usage[index] < _DEAD).nonzero()[:8, 0]
            rows = z.transpose(1, 2).flatten(0, 1)
            book.weight[dead] = rows[torch.randint(len(rows), (len(dead),))]
            self._usage[index, dead] = 0.5
        return (self._usage > 0.1).float().mean()


def padded_to_frames(sound: Tensor) -> Tensor:
    """Pads the end with zeros to whole frames. [n] to [F * hop]"""
    return F.pad(sound, (0, math.ceil(len(sound) / CODEC.hop) * CODEC.hop - len(sound)))
