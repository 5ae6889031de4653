"""Reading checkpoints of either family of names, and refusing broken ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ar_support import DATA, ROOT
from safetensors.torch import load_file, save_file
from torch import Tensor

from ar_worker.weights import DualArWeights, LayerWeights, expected_shapes, flat_name, load_weights, parameter_count
from common.checkpoint import CheckpointError, ModelConfig, load_model_config

CPU = torch.device("cpu")
TINY = DATA / "checkpoint_tiny"
DUAL_AR = {
    "model_type": "dual_ar",
    "vocab_size": 60,
    "n_layer": 2,
    "n_head": 4,
    "n_local_heads": 2,
    "head_dim": 8,
    "dim": 24,
    "intermediate_size": 40,
    "max_seq_len": 64,
    "tie_word_embeddings": False,
    "attention_qkv_bias": True,
    "attention_o_bias": True,
    "attention_qk_norm": True,
    "codebook_size": 16,
    "num_codebooks": 10,
    "n_fast_layer": 1,
    "fast_dim": 16,
    "fast_n_head": 2,
    "fast_n_local_heads": 1,
    "fast_head_dim": 8,
    "fast_intermediate_size": 32,
    "semantic_start_token_id": 40,
    "semantic_end_token_id": 55,
    "eos_token_id": 7,
}


def load(directory: Path) -> DualArWeights:
    return load_weights(directory, load_model_config(directory), CPU, torch.float32)


def tensors(item: object) -> list[Tensor]:
    """All tensors of loaded weights, in order."""
    if isinstance(item, Tensor):
        return [item]
    if isinstance(item, DualArWeights | LayerWeights):
        item = list(vars(item).values())
    return [leaf for part in item for leaf in tensors(part)] if isinstance(item, list) else []


def tiny_tensors() -> dict[str, Tensor]:
    return {name: value for path in sorted(TINY.glob("*.safetensors")) for name, value in load_file(path).items()}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[dict[str, Tensor]], Path]:
    """Write a checkpoint like ``tiny`` with other tensors."""

    def write(values: dict[str, Tensor]) -> Path:
        shutil.copy(TINY / "config.json", tmp_path)
        save_file(values, tmp_path / "model.safetensors")
        return tmp_path

    return write


@pytest.fixture
def dual_ar(tmp_path: Path) -> tuple[Path, ModelConfig, dict[str, Tensor]]:
    """The configuration and random flat tensors of a ``dual_ar`` checkpoint, no weights written yet."""
    (tmp_path / "config.json").write_text(json.dumps(DUAL_AR))
    config = load_model_config(tmp_path)
    generator = torch.Generator().manual_seed(1)
    return (
        tmp_path,
        config,
        {name: torch.randn(shape, generator=generator) for name, shape in expected_shapes(config).items()},
    )


@pytest.mark.parametrize(
    "directory", [TINY, DATA / "checkpoint_tiny4096", DATA / "checkpoint_long", ROOT / "models/mini"]
)
def test_published_checkpoints_load(directory: Path) -> None:
    config, weights = load_model_config(directory), load(directory)
    assert weights.head.shape == (config.slow.dim, config.codebook_size + 1)
    assert (weights.project_in is not None) == (config.slow.dim != config.fast.dim)


def test_flat_names_mean_the_same_as_published_ones(checkpoint: Callable[[dict[str, Tensor]], Path]) -> None:
    flat = {flat_name(name): value for name, value in tiny_tensors().items()}
    for got, want in zip(tensors(load(checkpoint(flat))), tensors(load(TINY)), strict=True):
        assert torch.equal(got, want)


def test_dual_ar_pickle_with_legacy_attention_loads(dual_ar: tuple[Path, ModelConfig, dict[str, Tensor]]) -> None:
    directory, config, values = dual_ar
    stored = dict(values)
    for name in [name for name in values if ".wqkv." in name]:
        stack = config.fast if name.startswith("fast_") else config.slow
        sizes = [stack.n_head * stack.head_dim, *[stack.n_kv_head * stack.head_dim] * 2]
        for part, value in zip(("wq", "wk", "wv"), stored.pop(name).split(sizes), strict=True):
            stored[name.replace("wqkv", part)] = value.clone()
    stored |= {"audio_projector.weight": torch.ones(3), "freqs_cis": torch.ones(2)}
    torch.save({"state_dict": {f"model.{name}": value for name, value in stored.items()}}, directory / "model.pth")
    weights = load(directory)
    assert torch.equal(weights.slow[1].wqkv, values["layers.1.attention.wqkv.weight"].T)
    assert weights.slow[0].wqkv_bias is not None
    assert torch.equal(weights.slow[0].wqkv_bias, values["layers.0.attention.wqkv.bias"])
    assert torch.equal(weights.fast[0].wqkv, values["fast_layers.0.attention.wqkv.weight"].T)
    output = values["output.weight"]
    assert torch.equal(weights.head, torch.cat([output[40:56], output[7:8]]).T)


def test_the_published_keys_of_s2_pro_are_what_the_model_needs(tmp_path: Path) -> None:
    """Key list and configuration of the published checkpoint, without its weights."""
    (tmp_path / "config.json").write_text((DATA / "s2_pro_config.json").read_text())
    config = load_model_config(tmp_path)
    published = {
        flat_name(name): tuple(shape) for name, shape in json.loads((DATA / "s2_pro_keys.json").read_bytes()).items()
    }
    assert published == expected_shapes(config)
    assert 4_500_000_000 < parameter_count(config) < 4_600_000_000


def test_missing_and_unexpected_keys_are_named(checkpoint: Callable[[dict[str, Tensor]], Path]) -> None:
    values = tiny_tensors()
    value = values.pop("text_model.model.layers.1.ffn_norm.weight")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: weights missing: layers\.1\.ffn_norm\.weight"):
        load(checkpoint(values))
    values |= {
        "text_model.model.layers.1.ffn_norm.weight": value,
        "text_model.model.layers.9.ffn_norm.weight": value + 0,
    }
    with pytest.raises(CheckpointError, match=r"weights unexpected: layers\.9\.ffn_norm\.weight"):
        load(checkpoint(values))


def test_wrong_shape_is_named(checkpoint: Callable[[dict[str, Tensor]], Path]) -> None:
    values = tiny_tensors() | {"text_model.model.norm.weight": torch.ones(63)}
    with pytest.raises(CheckpointError, match=r"wrong shape: norm\.weight \[63\] instead of \[64\]"):
        load(checkpoint(values))


def test_directory_without_weights_is_refused(dual_ar: tuple[Path, ModelConfig, dict[str, Tensor]]) -> None:
    with pytest.raises(CheckpointError, match=r"no model\.safetensors\.index\.json, model\.safetensors or model\.pth"):
        load(dual_ar[0])


@pytest.mark.parametrize("file", ["model.safetensors", "model.pth", "model.safetensors.index.json"])
def test_broken_file_is_named(dual_ar: tuple[Path, ModelConfig, dict[str, Tensor]], file: str) -> None:
    (dual_ar[0] / file).write_bytes(b"not weights")
    with pytest.raises(CheckpointError, match=file):
        load(dual_ar[0])


def test_missing_shard_is_named(dual_ar: tuple[Path, ModelConfig, dict[str, Tensor]]) -> None:
    index = {"weight_map": {"norm.weight": "model-00001-of-00002.safetensors"}}
    (dual_ar[0] / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="model-00001-of-00002"):
        load(dual_ar[0])
