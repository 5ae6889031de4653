"""Opens the files of a checkpoint's weights; each tensor is read when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from common.checkpoint import CheckpointError

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """A tensor of the checkpoint, not read yet."""

    shape: Shape
    read: Callable[[], Tensor]


def open_stored(directory: Path, files: ExitStack) -> tuple[Path, dict[str, Stored]]:
    """The file that names the weights (for messages) and its tensors, under their names in the file.

    Searched in this order: an index of safetensors shards, one safetensors file, one pickled state dict.

    Raises:
        CheckpointError: there is none, or one can't be opened.
    """
    index = directory / "model.safetensors.index.json"
    if index.exists():
        stored: dict[str, Stored] = {}
        for shard in _shards(index):
            stored |= _open_safetensors(directory / shard, files)
        return index, stored
    single, pickled = directory / "model.safetensors", directory / "model.pth"
    if single.exists():
        return single, _open_safetensors(single, files)
    if pickled.exists():
        return pickled, _open_pickle(pickled)
    raise CheckpointError(f"{directory}: no {index.name}, {single.name} or {pickled.name}")


def _shards(index: Path) -> list[str]:
    try:
        return sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index}: not an index of weights: {error!r}") from None


def _open_safetensors(path: Path, files: ExitStack) -> dict[str, Stored]:
    try:
        file = files.enter_context(safe_open(path, framework="pt"))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    return {
        name: Stored(tuple(file.get_slice(name).get_shape()), lambda name=name: file.get_tensor(name))  # type: ignore[misc]
        for name in file.keys()  # noqa: SIM118 (not a mapping)
    }


def _open_pickle(path: Path) -> dict[str, Stored]:
    try:
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch.load raises whatever the broken file provokes
        raise CheckpointError(f"{path}: {error}") from None
    values = values.get("state_dict", values)
    return {
        name: Stored(tuple(value.shape), lambda value=value: value)  # type: ignore[misc]
        for name, value in values.items()
        if isinstance(value, Tensor)
    }
