"""Reads the Dual-AR weights of a checkpoint directory.

Accepts two families of key names: the published ones (``text_model.model.*``, ``audio_decoder.*``) and the older flat
ones (``embeddings.weight``, ``layers.N.*``, ``fast_layers.N.*``, ...). This module uses the flat names. Tensors are
read and converted one at a time, so the checkpoint is never held twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from ar_worker.checkpoint_files import Shape, Stored, open_stored
from common.checkpoint import CheckpointError, ModelConfig, StackConfig

IGNORED_ENDINGS = ("freqs_cis", "causal_mask")  # buffers that some checkpoints carry along


@dataclass(frozen=True)
class LayerWeights:
    """One transformer block. Matrices are [in, out]: ``wqkv`` has q, k and v side by side, ``w13`` w1 and w3."""

    attention_norm: Tensor
    wqkv: Tensor
    wqkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    wo: Tensor
    wo_bias: Tensor | None
    ffn_norm: Tensor
    w13: Tensor
    w2: Tensor


@dataclass(frozen=True)
class DualArWeights:
    """All weights. Embeddings are [ids, dim], matrices [in, out] (faster for few rows than [out, in]).

    ``head`` covers only the tokens that can be drawn: the semantic ones in order, then the end token.
    """

    embeddings: Tensor
    codebook_embeddings: Tensor
    slow: list[LayerWeights]
    slow_norm: Tensor
    head: Tensor
    project_in: Tensor | None
    project_in_bias: Tensor | None
    fast_embeddings: Tensor
    fast: list[LayerWeights]
    fast_norm: Tensor
    fast_output: Tensor


def parameter_count(config: ModelConfig) -> int:
    """Numbers in a model's checkpoint."""
    return sum(math.prod(shape) for shape in expected_shapes(config).values())


def tensor_bytes(tree: Any) -> int:
    """Bytes of all tensors in nested dataclasses and lists."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    if isinstance(tree, list):
        return sum(tensor_bytes(item) for item in tree)
    if is_dataclass(tree):
        return sum(tensor_bytes(getattr(tree, field.name)) for field in fields(tree))
    return 0


def load_weights(directory: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> DualArWeights:
    """Read and check all weights of the model.

    Raises:
        CheckpointError: no weights, an unreadable file, or keys that are missing, unexpected or of a shape that
            contradicts the configuration.
    """
    with ExitStack() as files:
        path, raw = open_stored(directory, files)
        stored = _merge_legacy_qkv({flat_name(name): tensor for name, tensor in raw.items()})
        expected = expected_shapes(config)
        _check(path, stored, expected, config)

        def get(name: str) -> Tensor:
            return _read(path, name, stored[name]).to(device, dtype)

        return assemble(config, get)


def flat_name(name: str) -> str:
    """The flat name of a published one. Of flat names, a leading ``model.`` is removed."""
    if name.startswith("text_model."):
        return name.removeprefix("text_model.").removeprefix("model.")
    if name.startswith("audio_decoder.codebook_embeddings."):
        return name.removeprefix("audio_decoder.")
    if name.startswith("audio_decoder."):
        return "fast_" + name.removeprefix("audio_decoder.")
    return name.removeprefix("model.")


def expected_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Flat name to shape of every tensor the model needs."""
    slow, fast, codes = config.slow.dim, config.fast.dim, config.codebook_size
    shapes: dict[str, Shape] = {
        "embeddings.weight": (config.vocab_size, slow),
        "codebook_embeddings.weight": (codes * config.num_codebooks, slow),
        "norm.weight": (slow,),
        "fast_embeddings.weight": (codes, fast),
        "fast_norm.weight": (fast,),
        "fast_output.weight": (codes, fast),
    }
    if not config.tie_word_embeddings:
        shapes["output.weight"] = (config.vocab_size, slow)
    if slow != fast:
        shapes |= {"fast_project_in.weight": (fast, slow), "fast_project_in.bias": (fast,)}
    for prefix, stack in (("layers", config.slow), ("fast_layers", config.fast)):
        for layer in range(stack.n_layer):
            shapes |= {f"{prefix}.{layer}.{name}": shape for name, shape in _layer_shapes(stack).items()}
    return shapes


def _layer_shapes(stack: StackConfig) -> dict[str, Shape]:
    dim, inner, head_dim = stack.dim, stack.intermediate_size, stack.head_dim
    qkv = (stack.n_head + 2 * stack.n_kv_head) * head_dim
    shapes: dict[str, Shape] = {
        "attention_norm.weight": (dim,),
        "attention.wqkv.weight": (qkv, dim),
        "attention.wo.weight": (dim, stack.n_head * head_dim),
        "ffn_norm.weight": (dim,),
        "feed_forward.w1.weight": (inner, dim),
        "feed_forward.w3.weight": (inner, dim),
        "feed_forward.w2.weight": (dim, inner),
    }
    if stack.qk_norm:
        shapes |= {"attention.q_norm.weight": (head_dim,), "attention.k_norm.weight": (head_dim,)}
    if stack.qkv_bias:
        shapes["attention.wqkv.bias"] = (qkv,)
    if stack.o_bias:
        shapes["attention.wo.bias"] = (dim,)
    return shapes


def assemble(config: ModelConfig, get: Callable[[str], Tensor]) -> DualArWeights:
    """The weights of a model, of tensors that ``get`` gives by their flat names."""
    expected = expected_shapes(config)

    def maybe(name: str) -> Tensor | None:
        return get(name) if name in expected else None

    def matrix(name: str) -> Tensor:
        return get(name).t().contiguous()

    def layer(prefix: str) -> LayerWeights:
        return LayerWeights(
            attention_norm=get(f"{prefix}.attention_norm.weight"),
            wqkv=matrix(f"{prefix}.attention.wqkv.weight"),
            wqkv_bias=maybe(f"{prefix}.attention.wqkv.bias"),
            q_norm=maybe(f"{prefix}.attention.q_norm.weight"),
            k_norm=maybe(f"{prefix}.attention.k_norm.weight"),
            wo=matrix(f"{prefix}.attention.wo.weight"),
            wo_bias=maybe(f"{prefix}.attention.wo.bias"),
            ffn_norm=get(f"{prefix}.ffn_norm.weight"),
            w13=torch.cat([matrix(f"{prefix}.feed_forward.{name}.weight") for name in ("w1", "w3")], 1),
            w2=matrix(f"{prefix}.feed_forward.w2.weight"),
        )

    embeddings = get("embeddings.weight")
    output = embeddings if config.tie_word_embeddings else get("output.weight")
    winners = [*range(config.semantic_begin_id, config.semantic_end_id + 1), config.im_end_id]
    return DualArWeights(
        embeddings=embeddings,
        codebook_embeddings=get("codebook_embeddings.weight"),
        slow=[layer(f"layers.{index}") for index in range(config.slow.n_layer)],
        slow_norm=get("norm.weight"),
        head=output[winners].t().contiguous(),
        project_in=matrix("fast_project_in.weight") if "fast_project_in.weight" in expected else None,
        project_in_bias=maybe("fast_project_in.bias"),
        fast_embeddings=get("fast_embeddings.weight"),
        fast=[layer(f"fast_layers.{index}") for index in range(config.fast.n_layer)],
        fast_norm=get("fast_norm.weight"),
        fast_output=matrix("fast_output.weight"),
    )


def _check(path: Path, stored: Mapping[str, Stored], expected: Mapping[str, Shape], config: ModelConfig) -> None:
    ignored = {"output.weight"} if config.tie_word_embeddings else set()
    unexpected = [name for name in stored if name not in expected and not _ignorable(name, ignored)]
    _complain(path, "missing", [name for name in expected if name not in stored])
    _complain(path, "unexpected", unexpected)
    wrong = [
        f"{name} {list(stored[name].shape)} instead of {list(shape)}"
        for name, shape in expected.items()
        if stored[name].shape != shape
    ]
    _complain(path, "of the wrong shape", wrong)


def _ignorable(name: str, ignored: set[str]) -> bool:
    return name in ignored or name.endswith(IGNORED_ENDINGS) or "audio_" in name


def _complain(path: Path, what: str, names: list[str], shown: int = 5) -> None:
    if names:
        more = f" and {len(names) - shown} more" if len(names) > shown else ""
        raise CheckpointError(f"{path}: weights {what}: {', '.join(names[:shown])}{more}")


def _merge_legacy_qkv(stored: dict[str, Stored]) -> dict[str, Stored]:
    """Join separate wq, wk and wv to wqkv, rows in that order."""
    merged = dict(stored)
    for name in stored:
        if ".attention.wq." not in name:
            continue
        names = [name.replace(".wq.", f".{part}.") for part in ("wq", "wk", "wv")]
        if all(part in stored for part in names):
            parts = [merged.pop(part) for part in names]
            rows = sum(part.shape[0] for part in parts)
            shape = (rows, *parts[0].shape[1:])
            merged[name.replace(".wq.", ".wqkv.")] = Stored(shape, lambda parts=parts: _concatenate(parts))  # type: ignore[misc]
    return merged


def _concatenate(parts: list[Stored]) -> Tensor:
    return torch.cat([part.read() for part in parts])


def _read(path: Path, name: str, tensor: Stored) -> Tensor:
    try:
        return tensor.read()
    except (SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {name} can't be read: {error}") from None
