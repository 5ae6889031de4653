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
from models.recipe.training import Run, cosine, on_device, trained

FRAMES, CONTEXT, ROWS = 12, 20, 4  # frames of sound that are compared, frames of codes before them
LEAD = 1  # frames of sound made before those, for the decoder's own state
BEGINNINGS = 0.25  # share of batches from the first frame on, with nothing before it
ONSET, ONSET_WEIGHT = 16, 50.0  # samples at a beginning that are compared one by one as well: it should not click
RATE, SLOW_RATE = 1.5e-3, 0.5e-3  # of the wave decoder, of what leads to it


class Pieces:
    """Random pieces of encoded speech."""

    def __init__(self, settings: Settings) -> None:
        paths = [path for path in shard_paths(settings.corpus) if codes_path(path).exists()]
        every = []
        for shard in map(Shard, paths[: settings.codec_shards]):
            every += [(shard, *pair) for pair in zip(shard.utterances, utterance_codes(shard), strict=True)]
        self._long = [piece for piece in every if piece[2].shape[1] >= CONTEXT + FRAMES]

    def draw(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Codes int64 [ROWS, 10, context + FRAMES], and the sound of the last FRAMES, float32 [ROWS, FRAMES * hop]. A
        batch has a context of CONTEXT frames, or none where speech begins."""
        context = 0 if rng.random() < BEGINNINGS else CONTEXT
        codes = np.zeros((ROWS, 10, context + FRAMES), np.int64)
        sounds = np.zeros((ROWS, FRAMES * CODEC.hop), np.float32)
        for row in range(ROWS):
            shard, utterance, all_codes = self._long[rng.integers(len(self._long))]
            first = int(rng.integers(all_codes.shape[1] - codes.shape[2] + 1)) if context else 0
            codes[row] = all_codes[:, first : first + codes.shape[2]]
            sound = shard.sound(utterance)[(first + context) * CODEC.hop :][: sounds.shape[1]]
            sounds[row, : len(sound)] = sound
        return torch.tensor(codes), torch.tensor(sounds)


def decoded(codec: Codec, codes: Tensor) -> Tensor:
    """The sound of the last FRAMES, float32 [B, FRAMES * hop]. The transformer sees all codes, the decoder the end."""
    batch = WholeRows(len(codes))
    latent = codec.expanded(codec.dequantized(codes), batch)
    lead = min(LEAD, codes.shape[2] - FRAMES)
    made: Tensor = codec.decoder.decoder(latent[:, :, -(FRAMES + lead) * LATENTS_PER_FRAME :], batch)
    return made[:, 0, lead * CODEC.hop :]


def _parts(codec: Codec) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    half = codec.decoder
    before = [*half.quantizer.post_module.parameters(), *half.quantizer.upsample.parameters()]
    return list(half.decoder.parameters()), before


@on_device
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
        codes, sound = pieces.draw(rng)
        made = decoded(codec, codes)
        loss, mel = spectral_distance(made, sound)
        if codes.shape[2] == FRAMES:
            loss = loss + ONSET_WEIGHT * (made - sound)[:, :ONSET].abs().mean()
        run.update(loss, [*wave, *before], 5.0, distance=loss, mel=mel)


if __name__ == "__main__":
    make(parse_settings(__doc__))
