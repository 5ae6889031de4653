"""Step 7, the checkpoint: a directory in S2's format, with its reference voices.

``python -m models.recipe.export`` gathers what the steps before left in ``work/checkpoint``. Weights are stored in
float16, the gains of weight-normed convolutions in float32. The reference voices are the same words spoken by each of
the teacher's voices, in codes such as the model learned from.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file
from torch import Tensor

from models.recipe.codec import Codec, padded_to_frames
from models.recipe.corpus import cut, levelled
from models.recipe.encoder import mean_student
from models.recipe.flite import SAMPLE_RATE, VOICES, Flite
from models.recipe.settings import Settings, parse_settings
from models.recipe.tokenizer import write_configuration
from models.recipe.training import trained

REFERENCE_VOICES = {"ada": VOICES.index("slt"), "ben": VOICES.index("rms")}
DEFAULT_VOICE = "ada"
REFERENCE_TEXT = "Welcome to the city library. We are open every day, and you can stay as long as you like."
GENERATION = {
    "temperature": 0.5,
    "fast_temperature": 0.1,
    "top_p": 0.9,
    "top_k": 30,
    "normalize": "en",
    "turn_bytes": 110,
    "turns": 3,
}


def export_model(work: Path, target: Path) -> None:
    """model.safetensors, under the published names."""
    weights = {name: value for name, value in trained(work / "model.pt").items() if not name.startswith("phone_head.")}
    stored = {published_name(name): value.half().contiguous() for name, value in weights.items()}
    save_file(stored, target / "model.safetensors", {"format": "pt"})


def published_name(name: str) -> str:
    """Name of a parameter in a published checkpoint."""
    if name.startswith("codebook_embeddings."):
        return f"audio_decoder.{name}"
    if name.startswith("fast_"):
        return f"audio_decoder.{name.removeprefix('fast_')}"
    return f"text_model.model.{name}"


def export_codec(work: Path, target: Path) -> None:
    """codec.safetensors: decoder and encoder as trained, around the codebooks that both share."""
    codec = Codec()
    codec.load_state_dict(trained(work / "decoder.pt"))
    student = mean_student(trained(work / "encoder.pt"), codec)
    codec.encoder.encoder.load_state_dict(student.encoder.state_dict())
    quantizer = codec.encoder.quantizer
    quantizer.downsample.load_state_dict(student.downsample.state_dict())
    quantizer.pre_module.load_state_dict(student.pre_module.state_dict())
    stored: dict[str, Tensor] = {}
    for name, weight in {**codec.decoder.state_dict(), **codec.encoder.state_dict()}.items():
        stored.update(codec_tensors(name, weight))
    save_file(stored, target / "codec.safetensors")


def codec_tensors(name: str, weight: Tensor) -> dict[str, Tensor]:
    """A weight as codec.pth spells it. Those with weight norm are two tensors: w = v · g / ‖v‖."""
    stored = weight.half().contiguous()
    if name.startswith(("encoder.", "decoder.")) and name.endswith(".conv.weight"):
        gain, direction = "parametrizations.weight.original0", "parametrizations.weight.original1"
    elif name.endswith(("in_proj.weight", "out_proj.weight")) and ".quantizers." in name:
        gain, direction = "weight_g", "weight_v"
    else:
        return {name: stored}
    norm = stored.float().flatten(1).norm(dim=1).view(-1, *[1] * (stored.dim() - 1))
    prefix = name.removesuffix("weight")
    return {prefix + gain: norm, prefix + direction: stored}


@torch.inference_mode()
def export_voices(work: Path, target: Path) -> None:
    """voices/: the same words by each voice."""
    folder = target / "voices"
    folder.mkdir(exist_ok=True)
    codec = Codec().eval()
    codec.load_state_dict(trained(work / "quantizer.pt"))
    flite = Flite()
    for name, voice in REFERENCE_VOICES.items():
        _, sound = cut(flite.speak(REFERENCE_TEXT, VOICES[voice]), SAMPLE_RATE)
        samples = torch.from_numpy(levelled(sound, SAMPLE_RATE).astype(np.float32))
        codes = codec.encode(padded_to_frames(samples)[None])[0].numpy().astype(np.int16)
        save_arrays({"codes": codes}, folder / f"{name}.safetensors")
        (folder / f"{name}.txt").write_text(REFERENCE_TEXT)
    (folder / "voices.json").write_text(json.dumps({"default": DEFAULT_VOICE}) + "\n")


def make(settings: Settings) -> None:
    target = settings.work / "checkpoint"
    write_configuration(target)
    (target / "generation_config.json").write_text(json.dumps(GENERATION, indent=2) + "\n")
    export_model(settings.work, target)
    export_codec(settings.work, target)
    export_voices(settings.work, target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    make(parse_settings(__doc__))
