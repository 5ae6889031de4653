"""Metadata of the served checkpoint, and the defaults for requests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from common.checkpoint import (
    CheckpointError,
    GenerationConfig,
    load_codec_config,
    load_generation_config,
    load_model_config,
)
from gateway.checkpoint import bundled_voices as bundled
from gateway.checkpoint.bundled_voices import BundledVoices
from gateway.checkpoint.prompt import Prompts

_MIB = 1024 * 1024


class ServedModel(NamedTuple):
    """A served checkpoint. ``context``: most positions of a sequence; ``codebook_sizes``: of its ten codebooks."""

    name: str
    sample_rate: int
    hop: int
    context: int
    codebook_sizes: list[int]
    codec_fingerprint: str
    defaults: GenerationConfig
    prompts: Prompts
    voices: BundledVoices

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop


def load(directory: Path) -> ServedModel:
    """Load the metadata of a checkpoint directory.

    Raises:
        CheckpointError: naming the file and what is wrong with it.
    """
    model, codec = load_model_config(directory), load_codec_config(directory)
    prompts = Prompts(directory, model.semantic_begin_id)
    return ServedModel(
        name=directory.name,
        sample_rate=codec.sample_rate,
        hop=codec.hop,
        context=model.max_seq_len,
        codebook_sizes=codec.codebook_sizes,
        codec_fingerprint=codec_fingerprint(directory),
        defaults=load_generation_config(directory),
        prompts=prompts,
        voices=bundled.load(directory, codec.codebook_sizes, prompts),
    )


def codec_fingerprint(directory: Path) -> str:
    """Tells codecs apart whose codes don't fit each other: a hash of the configuration, and of the weight file's size,
    first and last MiB (a whole file of gigabytes would take too long).

    Raises:
        CheckpointError: there are no codec weights.
    """
    digest = hashlib.sha256()
    config = directory / "codec_config.json"
    if config.exists():
        digest.update(config.read_bytes())
    weights = next((path for name in ("codec.safetensors", "codec.pth") if (path := directory / name).exists()), None)
    if weights is None:
        raise CheckpointError(f"{directory}: neither codec.safetensors nor codec.pth is there")
    size = weights.stat().st_size
    digest.update(f"{weights.suffix} {size} ".encode())
    with weights.open("rb") as file:
        digest.update(file.read(_MIB))
        file.seek(max(0, size - _MIB))
        digest.update(file.read(_MIB))
    return digest.hexdigest()
