"""Sizes of the recipe: the whole one, and a tiny one that only shows that every step runs."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """What the steps share. Each reads what the ones before it wrote below ``work``."""

    work: Path
    seed: int = 1
    threads: int = 1
    sentences: int = 32_000
    codec_shards: int = 6  # the codec learns from these; the last of them is held out
    quantizer_steps: int = 1800
    decoder_steps: int = 6000
    adversarial_steps: int = 0
    encoder_steps: int = 5000
    model_steps: int = 12000

    @property
    def corpus(self) -> Path:
        return self.work / "corpus"


SMOKE = {
    "sentences": 60,
    "codec_shards": 1,
    "quantizer_steps": 6,
    "decoder_steps": 4,
    "adversarial_steps": 2,
    "encoder_steps": 4,
    "model_steps": 6,
}


def parse_settings(description: str | None) -> Settings:
    """Settings from the command line of a step."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--work", type=Path, default=Path("models/recipe/work"), help="where the steps keep their files"
    )
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of this step")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does every step run?")
    options = parser.parse_args()
    return Settings(work=options.work, threads=options.threads, **(SMOKE if options.smoke else {}))
