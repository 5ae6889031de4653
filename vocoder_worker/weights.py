"""Loads the codec's weights from a checkpoint directory: ``codec.safetensors``, or ``codec.pth`` as published.

Both hold the same names. Weight norm is stored in two spellings and folded here: w = v · g / ‖v‖, the norm over all
dimensions but the first. All weights become float32.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from common.checkpoint import CheckpointError, CodecConfig
from vocoder_worker.codec import CodecDecoder, CodecEncoder

Half = TypeVar("Half", CodecDecoder, CodecEncoder)

_UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, pickle.UnpicklingError, SafetensorError)
_EXTRA_BUFFER = re.compile(r"\.(freqs_cis|causal_mask)$")  # tables of the transformers, computed here when needed
_WEIGHT_NORMS = [  # gain and direction of a weight, in both spellings
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (".weight_g", ".weight_v"),
]
_WEIGHT_NORM_PART = re.compile(r"\.parametrizations\.weight\.original[01]$|\.weight_[gv]$")


class StoredWeights(NamedTuple):
    """Tensors of a codec file, unchanged."""

    path: Path
    tensors: dict[str, Tensor]

    def take(self, name: str, shape: torch.Size) -> Tensor:
        """Return a weight in float32, with its weight norm folded.

        Raises:
            CheckpointError: it is missing or misshapen.
        """
        for gain, direction in _WEIGHT_NORMS:
            prefix = name.removesuffix(".weight")
            if prefix + gain in self.tensors or prefix + direction in self.tensors:
                v = self._stored(prefix + direction, shape)
                g = self._stored(prefix + gain, torch.Size([shape[0]] + [1] * (len(shape) - 1)))
                return v * (g / torch.linalg.vector_norm(v, dim=tuple(range(1, v.dim())), keepdim=True))
        return self._stored(name, shape)

    def _stored(self, name: str, shape: torch.Size) -> Tensor:
        if name not in self.tensors:
            raise CheckpointError(f"{self.path}: {name} is missing")
        tensor = self.tensors[name]
        if tensor.shape != shape:
            raise CheckpointError(f"{self.path}: {name} is {list(tensor.shape)}, not {list(shape)}")
        return tensor.float()


def read_weights(directory: Path) -> StoredWeights:
    """Open ``codec.safetensors`` or, without it, ``codec.pth``.

    Raises:
        CheckpointError: neither file is there, or it can't be read.
    """
    for name, read in (("codec.safetensors", load_file), ("codec.pth", _read_pickle)):
        path = directory / name
        if path.exists():
            try:
                return StoredWeights(path, read(path))
            except _UNREADABLE as error:
                raise CheckpointError(f"{path}: unreadable: {error}") from None
    raise CheckpointError(f"{directory}: neither codec.safetensors nor codec.pth is there")


def _read_pickle(path: Path) -> dict[str, Tensor]:
    """Return the state dict of a file: at the top, under "state_dict", or below "generator." in a training state."""
    content: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    if isinstance(content, dict) and "state_dict" in content:
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError("not a state dict")
    if any("generator" in name for name in content):
        prefix = "generator."
        content = {name.removeprefix(prefix): value for name, value in content.items() if name.startswith(prefix)}
    return dict(content)


def load_decoder(stored: StoredWeights, config: CodecConfig, device: torch.device) -> CodecDecoder:
    """Load the decoder.

    Raises:
        CheckpointError: a weight is missing, misshapen, or not part of the codec.
    """
    decoder = _load(CodecDecoder, stored, config, device)
    decoder.tabulate()
    return decoder


def load_encoder(stored: StoredWeights, config: CodecConfig, device: torch.device) -> CodecEncoder:
    """Load the encoder. Raises as :func:`load_decoder`."""
    return _load(CodecEncoder, stored, config, device)


def _load(kind: type[Half], stored: StoredWeights, config: CodecConfig, device: torch.device) -> Half:
    _refuse_unexpected(stored, config)
    with torch.device("meta"):
        half = kind(config)
    weights = {name: stored.take(name, empty.shape) for name, empty in half.state_dict().items()}
    half.load_state_dict({name: weight.to(device, copy=True) for name, weight in weights.items()}, assign=True)
    return half.requires_grad_(False).eval()


def _refuse_unexpected(stored: StoredWeights, config: CodecConfig) -> None:
    """Refuse weights that belong neither to the decoder nor to the encoder."""
    with torch.device("meta"):
        known = {*CodecDecoder(config).state_dict(), *CodecEncoder(config).state_dict()}
    for name in stored.tensors:
        if _WEIGHT_NORM_PART.sub(".weight", name) not in known and not _EXTRA_BUFFER.search(name):
            raise CheckpointError(f"{stored.path}: {name} is not part of the codec that the configuration describes")
