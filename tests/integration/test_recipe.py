"""The recipe of the bundled model, in tiny sizes: every step runs, goes on where it stopped, and ends in a checkpoint
that the server's own code loads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ar_worker.weights import load_weights
from common.checkpoint import load_codec_config, load_generation_config, load_model_config
from gateway.checkpoint import bundled_voices as bundled
from gateway.checkpoint.prompt import Prompts
from models.recipe.flite import Flite
from vocoder_worker.weights import load_decoder, load_encoder, read_weights

ROOT = Path(__file__).parents[2]


def run_recipe(step: str, work: Path, *options: str) -> None:
    command = [sys.executable, "-m", f"models.recipe{step}", "--smoke", "--work", str(work), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_recipe_ends_in_a_checkpoint_that_the_server_loads_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run_recipe("", tmp_path)
    check(tmp_path / "checkpoint")
    before = torch.load(tmp_path / "quantizer.pt", weights_only=True)
    run_recipe(".quantizer", tmp_path)
    after = torch.load(tmp_path / "quantizer.pt", weights_only=True)
    assert before["step"] == after["step"] > 0
    assert all(torch.equal(before["modules"][name], after["modules"][name]) for name in before["modules"])
    assert torch.load(tmp_path / "model.pt", weights_only=True)["step"] == 6
    run_recipe(".model", tmp_path, "--model-steps", "8", "--threads", "2")  # in two processes that train together
    assert torch.load(tmp_path / "model.pt", weights_only=True)["step"] == 8


@pytest.mark.slow
def test_the_teacher_says_a_sentence_in_the_same_way_each_time() -> None:
    flite = Flite()
    first = flite.speak("The snow was deep.", "slt").sound
    flite.speak("We stayed at home.", "slt")
    assert np.array_equal(flite.speak("The snow was deep.", "slt").sound, first)


def check(checkpoint: Path) -> None:
    config, codec = load_model_config(checkpoint), load_codec_config(checkpoint)
    load_weights(checkpoint, config, torch.device("cpu"), torch.float32)
    load_decoder(read_weights(checkpoint), codec, torch.device("cpu"))
    load_encoder(read_weights(checkpoint), codec, torch.device("cpu"))
    assert load_generation_config(checkpoint).normalize == "en"
    voices = bundled.load(checkpoint, codec.codebook_sizes, Prompts(checkpoint, config.semantic_begin_id))
    assert set(voices.voices) == {"ada", "ben"}
    assert voices.default == "ada"
