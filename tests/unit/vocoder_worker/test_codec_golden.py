"""The codec against outputs of the original implementation on random tiny checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from common.messages import DecodeItem
from vocoder_worker.streaming import StreamState
from vocoder_worker.torch_executor import ExecutorSettings, TorchExecutor

DATA = Path(__file__).resolve().parents[2] / "data"
MODELS = ("tiny", "tiny4096")


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    golden = load_file(DATA / request.param / "codec.safetensors")
    return TorchExecutor(DATA / f"checkpoint_{request.param}", ExecutorSettings("cpu", slots=2)), golden


@pytest.fixture(scope="module")
def long_model():
    golden = dict(np.load(DATA / "long" / "tiny_codec_golden.npz"))
    return TorchExecutor(DATA / "checkpoint_long", ExecutorSettings("cpu", slots=2)), golden


def cases(golden, kind):
    return sorted({name.split(".")[1] for name in golden if name.startswith(f"{kind}.")})


def decode(executor, codes):
    """Sound of codes int [10, frames]."""
    item = DecodeItem("r", "g", slot=1, first=0, frames=codes.shape[1], reset=True)
    return executor.decode([item], codes.T.astype(np.int16)).sounds[0]


def encode(executor, sound):
    job = executor.start_encode(sound)
    while not job.advance():
        pass
    return job.codes


def decoder_features(executor, codes):
    """What comes out of each part of the decoder, one row, the whole at once."""
    decoder, features = executor.decoder, {}
    batch = StreamState(decoder, 1, executor.device).batch([0], [codes.shape[1]])
    features["z_q"] = decoder.latent(torch.from_numpy(decoder.table_rows(codes.T))[None])
    features["post_module"] = decoder.quantizer.post_module(features["z_q"], batch)
    x = features["z"] = decoder.quantizer.upsample(features["post_module"], batch)
    for index, layer in enumerate(decoder.decoder.model):
        x = features[f"stage{index}"] = layer(x) if index == 5 else layer(x, batch)
    return {name: value[0].numpy() for name, value in features.items()}


def encoder_features(executor, sound):
    encoder, frames = executor.encoder, -(-len(sound) // executor.hop)
    batch = StreamState(encoder, 1, executor.device).batch([0], [frames])
    padded = np.pad(sound, (0, frames * executor.hop - len(sound)))
    encoded = encoder.encoder(torch.from_numpy(padded)[None, None], batch)
    downsampled = encoder.quantizer.downsample(encoded, batch)
    pre = encoder.quantizer.pre_module(downsampled, batch)
    features = {"encoder_out": encoded, "downsampled": downsampled, "pre_module": pre}
    return {name: value[0].numpy() for name, value in features.items()}


def assert_close(got, expected, tolerance=1e-5):
    """Close in proportion to the largest value expected, or to 1 where all are smaller."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


def test_decoded_sound_is_that_of_the_original(model):
    executor, golden = model
    for case in cases(golden, "decode"):
        assert_close(decode(executor, golden[f"decode.{case}.codes"]), golden[f"decode.{case}.wave"])


def test_each_part_of_the_decoder_agrees_with_the_original(model):
    executor, golden = model
    for case in cases(golden, "decode"):
        features = decoder_features(executor, golden[f"decode.{case}.codes"])
        for name in features.keys() & {name.split(".")[-1] for name in golden if name.startswith(f"decode.{case}.")}:
            assert_close(features[name], golden[f"decode.{case}.{name}"])


def test_every_decoder_stage_is_compared():
    golden = load_file(DATA / "tiny" / "codec.safetensors")
    assert {f"decode.T2.stage{stage}" for stage in range(7)} <= golden.keys()


def test_codes_outside_a_codebook_are_clamped_and_left_as_they_are(model):
    executor, golden = model
    codes, clamped = golden["decode.clamp.codes"], golden["decode.clamp.codes_after"]
    assert (codes != clamped).any()
    before = codes.copy()
    np.testing.assert_array_equal(decode(executor, codes), decode(executor, clamped))
    np.testing.assert_array_equal(codes, before)


def test_encoded_codes_are_those_of_the_original(model):
    executor, golden = model
    for case in cases(golden, "encode"):
        np.testing.assert_array_equal(encode(executor, golden[f"encode.{case}.wave"]), golden[f"encode.{case}.codes"])


def test_each_part_of_the_encoder_agrees_with_the_original(model):
    executor, golden = model
    for case in cases(golden, "encode"):
        for name, value in encoder_features(executor, golden[f"encode.{case}.wave"]).items():
            if f"encode.{case}.{name}" in golden:
                assert_close(value, golden[f"encode.{case}.{name}"], 3e-5)


def test_decoding_beyond_the_window_agrees_with_the_original(long_model):
    executor, golden = long_model
    codes = golden["codes"][0]
    assert codes.shape[1] > 128
    features = decoder_features(executor, codes)
    assert_close(np.tanh(features["stage6"]), golden["audio"][0])
    for name, ours in (("zq", "z_q"), ("post", "post_module"), ("up", "z")):
        assert_close(features[ours], golden[name][0])


def test_decoding_in_chunks_beyond_the_window_agrees_with_the_original(long_model):
    executor, golden = long_model
    codes = golden["codes"][0].T.astype(np.int16)
    ends = np.cumsum([1, 1, 3, 5, 10, 40, 100, 1, 39])
    sounds = []
    for first, end in zip([0, *ends], ends, strict=False):
        item = DecodeItem("r", "g", slot=0, first=int(first), frames=int(end - first), reset=first == 0)
        sounds += executor.decode([item], codes[first:end]).sounds
    assert_close(np.concatenate(sounds), golden["audio"][0, 0])


def test_encoding_beyond_the_window_agrees_with_the_original(long_model):
    executor, golden = long_model
    sound = golden["wav"].astype(np.float32)
    np.testing.assert_array_equal(encode(executor, sound), golden["indices"][0])
    features = encoder_features(executor, sound)
    for name, ours in (("enc", "encoder_out"), ("down", "downsampled"), ("pre", "pre_module")):
        assert_close(features[ours], golden[name][0], 3e-5)
