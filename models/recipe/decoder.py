"""Step 5, the decoder: sound from the codes.

``python -m models.recipe.decoder`` trains the wave decoder, and what leads to it from the codes, on the frozen codes
of the quantizer.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from models.recipe.codec import CODEC, LATENTS_PER_FRAME, Codec, WholeRows
from models.recipe.corpus import Shard, shard_paths
from models.recipe.encode import codes_path, utterance_codes
from models.recipe.features import spectral_distance
from models.recipe.settings import Settings, parse_settings
from models.recipe.snake import for_training
from models.recipe.training import Run, cosine, trained

FRAMES, CONTEXT, ROWS = 12, 20, 4  # frames of sound that are compared, frames of codes before them
LEAD = 1  # frames of sound made before those, for the decoder's own state
RATE, SLOW_RATE = 1.5e-3, 0.5e-3  # of the wave decoder, of what leads to it


class Pieces:
    """Random pieces of encoded speech."""

    def __init__(self, settings: Settings) -> None:
        paths = [path for path in shard_paths(settings.corpus) if codes_path(path).exists()]
        self._all = []
        for shard in map(Shard, paths[: settings.codec_shards]):
            self._all += [(shard, *pair) for pair in zip(shard.utterances, utterance_codes(shard), strict=True)]

    def draw(self, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Codes int64 [ROWS, 10, CONTEXT + FRAMES], which of them exist float32 [ROWS, 1, the same], and the sound of
        the last FRAMES, float32 [ROWS, FRAMES * hop]."""
        codes = np.zeros((ROWS, 10, CONTEXT + FRAMES), np.int64)
        exists = np.zeros((ROWS, 1, CONTEXT + FRAMES), np.float32)
        sounds = np.zeros((ROWS, FRAMES * CODEC.hop), np.float32)
        for row, index in enumerate(rng.integers(len(self._all), size=ROWS)):
            shard, utterance, all_codes = self._all[index]
            end = int(rng.integers(FRAMES, max(FRAMES + 1, all_codes.shape[1] + 1)))
            some = all_codes[:, max(0, end - FRAMES - CONTEXT) : end]
            first = CONTEXT + FRAMES - some.shape[1] - max(0, end - all_codes.shape[1])
            codes[row, :, first : first + some.shape[1]] = some
            exists[row, 0, first:] = 1
            sound = shard.sound(utterance)[(end - FRAMES) * CODEC.hop : end * CODEC.hop]
            sounds[row, : len(sound)] = sound
        return torch.from_numpy(codes), torch.from_numpy(exists), torch.from_numpy(sounds)


def decoded(codec: Codec, codes: Tensor, exists: Tensor) -> Tensor:
    """The sound of the last FRAMES, float32 [B, FRAMES * hop]. The transformer sees all codes, the decoder the end."""
    batch = WholeRows(len(codes))
    latent = codec.expanded(codec.dequantized(codes) * exists, batch)
    end = latent[:, :, -(FRAMES + LEAD) * LATENTS_PER_FRAME :]
    made: Tensor = codec.decoder.decoder(end, batch)
    return made[:, 0, LEAD * CODEC.hop :]


def _parts(codec: Codec) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    half = codec.decoder
    before = [*half.quantizer.post_module.parameters(), *half.quantizer.upsample.parameters()]
    return list(half.decoder.parameters()), before


def make(settings: Settings) -> None:
    torch.manual_seed(settings.seed)
    codec = Codec()
    codec.load_state_dict(trained(settings.work / "quantizer.pt"))
    for_training(codec.decoder)
    wave, before = _parts(codec)
    groups = [{"params": wave, "lr": RATE}, {"params": before, "lr": SLOW_RATE}]
    optimizer = torch.optim.AdamW(groups, betas=(0.8, 0.98), weight_decay=0.0)
    pieces = Pieces(settings)
    run = Run(settings, "decoder", settings.decoder_steps, codec, [optimizer])
    for _, rng in run.each_step(cosine):
        codes, exists, sound = pieces.draw(rng)
        loss, mel = spectral_distance(decoded(codec, codes, exists), sound)
        run.update(loss, [*wave, *before], 5.0, distance=loss, mel=mel)


if __name__ == "__main__":
    make(parse_settings(__doc__))
