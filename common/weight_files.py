"""Integrity of a checkpoint's weight files, from their headers and sizes alone: no weights are read, and no torch.

A download or copy that broke off leaves a shorter file, and a clone without Git LFS a small text file in its place.
"""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

from common.checkpoint import CheckpointError

INDEX = "model.safetensors.index.json"
LFS_POINTER = b"version https://git-lfs"
ZIP_BEGIN = b"PK\x03\x04"
MAX_HEADER_BYTES = 100 * 1024 * 1024  # as the format has it


def check_weight_files(directory: Path) -> None:
    """Check that each weight file of a checkpoint is there and whole.

    Raises:
        CheckpointError: a file is missing, truncated or no weight file.
    """
    for path in sorted(_shards(directory) | set(directory.glob("*.safetensors"))):
        _check_safetensors(path)
    for path in sorted(directory.glob("*.pth")):
        _check_pickle(path)


def _shards(directory: Path) -> set[Path]:
    """The files that the index of a sharded checkpoint names."""
    index = directory / INDEX
    if not index.exists():
        return set()
    try:
        return {directory / name for name in json.loads(index.read_bytes())["weight_map"].values()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index}: not an index of weights: {error!r}") from None


def _check_safetensors(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(max(8, len(LFS_POINTER)))
            _refuse_pointer(path, start)
            length = struct.unpack("<Q", start[:8])[0]
            if length > MAX_HEADER_BYTES:
                raise CheckpointError(f"{path}: not a safetensors file")
            file.seek(8)
            header = json.loads(file.read(length))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
    except (ValueError, struct.error, KeyError, AttributeError, TypeError, IndexError):
        raise CheckpointError(f"{path}: its header is damaged or truncated") from None
    expected, size = 8 + length + max(ends, default=0), path.stat().st_size
    if size != expected:
        raise CheckpointError(f"{path}: {size} bytes, and its header describes {expected}: truncated or damaged")


def _check_pickle(path: Path) -> None:
    """A zip archive, as torch writes it, ends with its directory. Older pickles have no such mark."""
    try:
        with path.open("rb") as file:
            start = file.read(len(LFS_POINTER))
        _refuse_pointer(path, start)
        if not start or (start.startswith(ZIP_BEGIN) and not zipfile.is_zipfile(path)):
            raise CheckpointError(f"{path}: {path.stat().st_size} bytes: truncated")
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None


def _refuse_pointer(path: Path, start: bytes) -> None:
    if start.startswith(LFS_POINTER):
        raise CheckpointError(f"{path}: a pointer of Git LFS, not the weights (git lfs pull fetches them)")
