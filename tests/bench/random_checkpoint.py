"""``python -m tests.bench.random_checkpoint SIZE DIRECTORY``: writes an S2 checkpoint with random weights.

Sizes: ``20m`` (dim 384, 8 + 4 layers, about 20 million parameters) and ``393m`` (dim 1024, 24 + 4 layers). Tokenizer,
prompt format and file names are those of a published checkpoint, so any server of such models loads it. The codec is a
random one of the bundled model's size. The speech is noise; what it takes to make it is not.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import click
import torch
from safetensors.torch import save_file

from common.checkpoint import load_model_config
from common.config import ROOT
from models.recipe.codec import Codec
from models.recipe.dual_ar import DualAR
from models.recipe.export import codec_tensors, published_name
from models.recipe.tokenizer import write_codec_configuration

TOKENIZER = ROOT / "tests" / "data" / "checkpoint_tiny"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")


TRAINING_ONLY = ("phone_head.", "fast_project_in.")  # the latter joins stacks of different widths


class Size(NamedTuple):
    """Dimensions of both stacks."""

    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    layers: int
    fast_layers: int


SIZES = {
    "20m": Size(384, 6, 2, 64, 1024, 8, 4),
    "393m": Size(1024, 16, 8, 64, 4096, 24, 4),
}


def configuration(size: Size) -> dict[str, object]:
    """``config.json`` of a size, with the vocabulary of the tokenizer."""
    config = json.loads((TOKENIZER / "config.json").read_text())
    stack = {
        "dim": size.dim,
        "n_head": size.heads,
        "n_local_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "intermediate_size": size.feed_forward,
        "attention_qk_norm": True,
    }
    config["text_config"] |= stack | {"n_layer": size.layers}
    config["audio_decoder_config"] |= stack | {"n_layer": size.fast_layers, "text_dim": size.dim}
    return dict(config)


def write(size: Size, directory: Path, seed: int = 0) -> int:
    """Write a checkpoint; returns the parameters of the transformer."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (TOKENIZER / name).exists():
            shutil.copy(TOKENIZER / name, directory / name)
    (directory / "config.json").write_text(json.dumps(configuration(size), indent=2))
    torch.manual_seed(seed)
    weights = DualAR(load_model_config(directory)).state_dict()
    kept = {name: value for name, value in weights.items() if not name.startswith(TRAINING_ONLY)}
    stored = {published_name(name): value.bfloat16() for name, value in kept.items()}
    save_file(stored, directory / "model.safetensors", {"format": "pt"})
    codec = Codec()
    parts = {**codec.decoder.state_dict(), **codec.encoder.state_dict()}
    tensors = {name: value for part, weight in parts.items() for name, value in codec_tensors(part, weight).items()}
    save_file(tensors, directory / "codec.safetensors")
    write_codec_configuration(directory)
    return sum(value.numel() for value in stored.values())


@click.command(help=(__doc__ or "").partition("\n\n")[2])
@click.argument("size", type=click.Choice(list(SIZES)))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True)
def main(size: str, directory: Path, seed: int) -> None:
    parameters = write(SIZES[size], directory, seed)
    click.echo(f"{directory}: {parameters / 1e6:.0f} million parameters")


if __name__ == "__main__":
    main()
