"""The bundled checkpoint, as it lies in the repository."""

from __future__ import annotations

from pathlib import Path

from common.checkpoint import load_codec_config, load_generation_config, load_model_config
from gateway.checkpoint import bundled_voices as bundled
from gateway.checkpoint.prompt import Prompts
from models.recipe.export import GENERATION, REFERENCE_TEXT, REFERENCE_VOICES

MINI = Path(__file__).parents[3] / "models" / "mini"
MOST_BYTES = 20_000_000


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in MINI.rglob("*") if path.is_file()) <= MOST_BYTES


def test_it_is_what_the_recipe_exports() -> None:
    generation = load_generation_config(MINI)
    assert (generation.normalize, generation.turn_bytes, generation.turns) == ("en", 110, 3)
    assert all(getattr(generation, name) == value for name, value in GENERATION.items())
    codec, prompts = load_codec_config(MINI), Prompts(MINI, load_model_config(MINI).semantic_begin_id)
    voices = bundled.load(MINI, codec.codebook_sizes, prompts)
    assert voices.default == "ada"
    assert {name: voice.text for name, voice in voices.voices.items()} == dict.fromkeys(
        REFERENCE_VOICES, REFERENCE_TEXT
    )
    assert codec.sample_rate / codec.hop <= 25  # frames per second
