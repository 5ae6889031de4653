"""Settings of the recipe, and tiny ones for a smoke test of every step."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec


class Settings(msgspec.Struct, frozen=True):
    """Settings shared by the steps. Each step reads the output of earlier ones below ``work``."""

    work: Path = Path("models/recipe/work")
    seed: int = 1
    threads: int = 1
    device: str = "cpu"  # cuda: of all steps but the corpus, which Flite speaks on the CPU
    teacher: str = "flite"  # or kokoro, from which only the corpus can be made so far
    sentences: int = 32_000
    codec_shards: int = 6  # the codec learns from the first few shards of the corpus
    quantizer_steps: int = 1800
    decoder_steps: int = 10_000
    encoder_steps: int = 14_000
    model_steps: int = 4000

    @property
    def corpus(self) -> Path:
        return self.work / "corpus"


SMOKE = {
    "sentences": 60,
    "quantizer_steps": 6,
    "decoder_steps": 4,
    "encoder_steps": 4,
    "model_steps": 6,
}


def parse_settings(description: str | None) -> Settings:
    """Settings from the command line of a step: ``--model-steps 20000`` and so on, by the names of the fields."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: does every step run?")
    for field in msgspec.structs.fields(Settings):
        name = "--" + field.name.replace("_", "-")
        parser.add_argument(name, type=field.type, default=argparse.SUPPRESS, help=f"default: {field.default}")
    options = vars(parser.parse_args())
    sizes = SMOKE if options.pop("smoke") else {}
    return Settings(**(sizes | options))
