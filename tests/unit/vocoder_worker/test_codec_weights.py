"""Codec files: every accepted form loads the same weights, and what is wrong with any other is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from common.checkpoint import CheckpointError, load_codec_config
from vocoder_worker.weights import load_decoder, load_encoder, read_weights

TINY = Path(__file__).resolve().parents[2] / "data" / "checkpoint_tiny"
CPU = torch.device("cpu")
DECODER_KEY = "decoder.model.1.block.1.conv.parametrizations.weight.original1"
VQ_KEY = "quantizer.quantizer.quantizers.3.out_proj.weight_g"
ENCODER_KEY = "encoder.block.0.conv.bias"


@pytest.fixture(scope="module")
def published():
    return torch.load(TINY / "codec.pth", weights_only=True)


@pytest.fixture(scope="module")
def config():
    return load_codec_config(TINY)


def load_both(directory, config):
    stored = read_weights(directory)
    halves = load_decoder(stored, config, CPU), load_encoder(stored, config, CPU)
    return {f"{index}.{name}": value for index, half in enumerate(halves) for name, value in half.named_parameters()}


def assert_equal_weights(got, expected, tolerance=0.0):
    assert got.keys() == expected.keys()
    for name, value in got.items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, expected[name], rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def expected(config):
    return load_both(TINY, config)


def wrapped(state):
    return {"state_dict": state}


def as_generator(state):
    return {"state_dict": {f"generator.{name}": value for name, value in state.items()} | {"other": torch.ones(1)}}


@pytest.mark.parametrize("form", [wrapped, as_generator])
def test_forms_of_codec_pth(tmp_path, published, config, expected, form):
    torch.save(form(published), tmp_path / "codec.pth")
    assert_equal_weights(load_both(tmp_path, config), expected)


def test_pickles_of_the_older_format(tmp_path, published, config, expected):
    torch.save(published, tmp_path / "codec.pth", _use_new_zipfile_serialization=False)
    assert_equal_weights(load_both(tmp_path, config), expected)


def test_safetensors_in_fp16(tmp_path, published, config, expected):
    save_file({name: value.half() for name, value in published.items()}, tmp_path / "codec.safetensors")
    assert_equal_weights(load_both(tmp_path, config), expected, 2e-3)


def test_the_extra_buffers_of_the_published_file_are_ignored(tmp_path, published, config, expected):
    extra = {
        f"{module}.{table}": torch.zeros(2)
        for module in ("encoder.block.4.block.5", "quantizer.pre_module", "quantizer.post_module")
        for table in ("freqs_cis", "causal_mask")
    }
    torch.save(published | extra, tmp_path / "codec.pth")
    assert_equal_weights(load_both(tmp_path, config), expected)


def test_folded_weights_have_the_norm_of_their_gain(published, config):
    decoder = load_decoder(read_weights(TINY), config, CPU)
    gain = published[DECODER_KEY.replace("original1", "original0")].flatten()
    weight = decoder.get_parameter("decoder.model.1.block.1.conv.weight")
    torch.testing.assert_close(weight.flatten(1).norm(dim=1), gain.abs())


@pytest.mark.parametrize("key", [DECODER_KEY, VQ_KEY, ENCODER_KEY])
def test_a_missing_weight_is_named(tmp_path, published, config, key):
    torch.save({name: value for name, value in published.items() if name != key}, tmp_path / "codec.pth")
    with pytest.raises(CheckpointError, match=rf"codec\.pth: {key} is missing"):
        load_both(tmp_path, config)


@pytest.mark.parametrize("key", [DECODER_KEY, VQ_KEY, ENCODER_KEY])
def test_a_misshapen_weight_is_named(tmp_path, published, config, key):
    torch.save(published | {key: torch.zeros(3, 2)}, tmp_path / "codec.pth")
    with pytest.raises(CheckpointError, match=rf"codec\.pth: {key} is \[3, 2\], not \["):
        load_both(tmp_path, config)


def test_an_unexpected_weight_is_named(tmp_path, published, config):
    torch.save(published | {"decoder.model.9.alpha": torch.zeros(1)}, tmp_path / "codec.pth")
    with pytest.raises(CheckpointError, match=r"decoder\.model\.9\.alpha is not part"):
        load_both(tmp_path, config)


def test_each_half_needs_only_its_own_weights(tmp_path, published, config):
    for prefix, load in (("encoder.", load_decoder), ("decoder.", load_encoder)):
        torch.save({n: v for n, v in published.items() if not n.startswith(prefix)}, tmp_path / "codec.pth")
        load(read_weights(tmp_path), config, CPU)


@pytest.mark.parametrize("name", ["codec.pth", "codec.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all"])
def test_an_unreadable_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [[1, 2], {"state_dict": 3}, {"a": "b"}])
def test_a_pickle_without_a_state_dict_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "codec.pth")
    with pytest.raises(CheckpointError, match="state dict"):
        read_weights(tmp_path)


def test_pickled_code_is_not_run(tmp_path):
    torch.save({"decoder": torch.nn.Linear(1, 1)}, tmp_path / "codec.pth")
    with pytest.raises(CheckpointError, match=r"codec\.pth"):
        read_weights(tmp_path)


def test_a_directory_without_a_codec_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=f"{tmp_path}.*codec"):
        read_weights(tmp_path)
