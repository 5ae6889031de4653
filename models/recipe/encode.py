"""Step 3, the codes: every utterance of the corpus through the quantizer.

``python -m models.recipe.encode`` writes ``NNN.codes.npy`` beside each shard: int16 [10, frames], one utterance after
another, each of ``ceil(samples / hop)`` frames. A file that is there is not made again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from common.messages import Array
from models.recipe.codec import CODEC, Codec, padded_to_frames
from models.recipe.corpus import Shard, shard_paths
from models.recipe.settings import Settings, parse_settings
from models.recipe.training import on_device, trained

ROWS = 16


def frame_count(samples: int) -> int:
    return math.ceil(samples / CODEC.hop)


def codes_path(shard: Path) -> Path:
    return shard.with_suffix(".codes.npy")


def utterance_codes(shard: Shard) -> Iterator[Array]:
    """The codes of each utterance, int16 [10, frames]."""
    codes = np.load(codes_path(shard.path))
    ends = np.cumsum([frame_count(utterance.samples) for utterance in shard.utterances])
    for begin, end in itertools.pairwise([0, *ends]):
        yield codes[:, begin:end]


@torch.inference_mode()
def encode_shard(codec: Codec, shard: Shard) -> Array:
    """int16 [10, frames of all utterances]. Utterances of like length go through together."""
    sounds = [padded_to_frames(torch.tensor(shard.sound(utterance))) for utterance in shard.utterances]
    order = sorted(range(len(sounds)), key=lambda index: len(sounds[index]))
    encoded: dict[int, Array] = {}
    for first in range(0, len(order), ROWS):
        chosen = order[first : first + ROWS]
        codes = codec.encode(_rows([sounds[index] for index in chosen])).cpu().numpy().astype(np.int16)
        for row, index in enumerate(chosen):
            encoded[index] = codes[row, :, : len(sounds[index]) // CODEC.hop]
    return np.concatenate([encoded[index] for index in range(len(sounds))], 1)


def _rows(sounds: list[Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(sounds, batch_first=True)


@on_device
def make(settings: Settings) -> None:
    torch.set_num_threads(settings.threads)
    codec = Codec().eval()
    codec.load_state_dict(trained(settings.work / "quantizer.pt"))
    missing = [path for path in shard_paths(settings.corpus) if not codes_path(path).exists()]
    for path in tqdm(missing, "shards"):
        codes = encode_shard(codec, Shard(path))
        part = path.with_suffix(".part.npy")
        np.save(part, codes)
        part.replace(codes_path(path))


if __name__ == "__main__":
    make(parse_settings(__doc__))
