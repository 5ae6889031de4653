"""Step 2, the quantizer: codes that preserve the mels of the teacher's speech; the first code preserves its phones.

``python -m models.recipe.quantizer`` trains everything of the codec that runs at 80 Hz and below, between the front end
and a head that predicts the mels again. Nothing here runs at 16 kHz, which is what makes it quick.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.messages import Array
from models.recipe.codec import CODEC, LATENT_HOP, LATENTS_PER_FRAME, Codec, CodeUsage, WholeRows
from models.recipe.corpus import Shard, Utterance, shard_paths
from models.recipe.features import causal_log_mels
from models.recipe.flite import PHONES, SAMPLE_RATE
from models.recipe.settings import Settings, parse_settings
from models.recipe.training import Run, cosine, on_device

FRAMES, ROWS = 40, 12
DROPOUT = 0.3  # share of rows that are quantized with the first few residual codebooks only


def phones_at(utterance: Utterance, steps: int) -> Array:
    """Phone at the middle of each latent step. int64 [steps]"""
    times = (np.arange(steps) + 0.5) * LATENT_HOP / SAMPLE_RATE
    index = np.searchsorted(utterance.phone_ends, times).clip(max=len(utterance.phones) - 1)
    return np.array(utterance.phones)[index]


class Crops:
    """Draws random crops of the corpus; those of the voice ``often`` twice as often."""

    def __init__(self, settings: Settings, often: int | None = None) -> None:
        paths = shard_paths(settings.corpus)[: settings.codec_shards]
        shards = [Shard(path) for path in paths]
        self._all = [(shard, utterance) for shard in shards for utterance in shard.utterances]
        self._all += [(shard, utterance) for shard, utterance in self._all if utterance.voice == often]

    def draw(self, rng: np.random.Generator, rows: int, frames: int) -> tuple[Tensor, Tensor]:
        """Sound float32 [rows, frames * hop] at changing loudness, and phones int64 [rows, frames * 4]."""
        sounds = np.zeros((rows, frames * CODEC.hop), np.float32)
        phones = np.zeros((rows, frames * LATENTS_PER_FRAME), np.int64)
        for row, index in enumerate(rng.integers(len(self._all), size=rows)):
            shard, utterance = self._all[index]
            first = int(rng.integers(max(1, utterance.samples - sounds.shape[1]))) // LATENT_HOP
            sound = shard.sound(utterance)[first * LATENT_HOP :][: sounds.shape[1]]
            sounds[row, : len(sound)] = sound * 10 ** rng.uniform(-0.15, 0.15)
            phones[row] = phones_at(utterance, first + phones.shape[1])[first:]
        return torch.tensor(sounds), torch.tensor(phones)


class Quantized(NamedTuple):
    """Quantized latents with their codes and losses."""

    loss: Tensor
    values: dict[str, Tensor]  # for the log
    codes: Tensor  # int64 [B, 10, F]
    encodings: Tensor  # what the codes stand for, [B, 10 * codebook_dim, F]


def quantized(codec: Codec, z: Tensor, mels: Tensor, phones: Tensor) -> Quantized:
    """10 mel L1 + DAC's codebook and commitment losses + 0.3 cross-entropy of the phones behind the semantic code.

    z [B, latent_dim, F], mels [B, FRONT_END_MELS, 4 F], phones int64 [B, 4 F].
    """
    batch, quantizer = WholeRows(len(z)), codec.encoder.quantizer
    semantic, first, first_z, commitment, codebook = quantizer.semantic_quantizer(z)
    residual, rest, rest_z, residual_commitment, residual_codebook = quantizer.quantizer(z - semantic)
    made = codec.mel_head(codec.expanded(semantic + residual, batch), batch)
    heard = codec.phone_head(semantic.transpose(1, 2)).unflatten(2, (LATENTS_PER_FRAME, len(PHONES))).flatten(0, 2)
    mel, phone = (made - mels).abs().mean(), F.cross_entropy(heard, phones.flatten())
    quantization = 0.25 * (commitment + residual_commitment) + codebook + residual_codebook
    values = {"mel": mel, "quantization": quantization, "phone": phone}
    codes, encodings = torch.cat([first, rest], 1), torch.cat([first_z, rest_z], 1).detach()
    return Quantized(10 * mel + quantization + 0.3 * phone, values, codes, encodings)


def quantizer_loss(codec: Codec, usage: CodeUsage, sound: Tensor, phones: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of quantizing sound through the front end."""
    mels = causal_log_mels(sound, LATENT_HOP)
    loss, values, codes, encodings = quantized(codec, codec.latent(mels, WholeRows(len(sound))), mels, phones)
    return loss, values | {"used": usage.update(codes, encodings)}


@on_device
def make(settings: Settings) -> None:
    torch.manual_seed(settings.seed)
    codec = Codec()
    codec.encoder.quantizer.quantizer.quantizer_dropout = DROPOUT
    parts = nn.ModuleList(
        [codec.front_end, codec.encoder.quantizer, codec.decoder.quantizer, codec.mel_head, codec.phone_head]
    )
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1.2e-3, betas=(0.8, 0.98), weight_decay=0.01)
    usage, crops = CodeUsage(codec), Crops(settings)
    run = Run(settings, "quantizer", settings.quantizer_steps, codec, [optimizer])
    for _, rng in run.each_step(cosine):
        loss, values = quantizer_loss(codec, usage, *crops.draw(rng, ROWS, FRAMES))
        run.update(loss, parts.parameters(), 2.0, **values)


if __name__ == "__main__":
    make(parse_settings(__doc__))
