"""Codes of recordings in a safetensors file, with the fingerprint of their codec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from common.messages import Array

_CODEC = "codec"


class CodesError(ValueError):
    """A file that holds no codes of this codec; the message names it."""


def pack(codes: list[Array], fingerprint: str) -> bytes:
    """Serialize codes, int16 [10, frames] each."""
    tensors = {str(number): np.ascontiguousarray(array) for number, array in enumerate(codes)}
    return save(tensors, {_CODEC: fingerprint})


def read(path: Path, fingerprint: str, count: int) -> list[Array]:
    """Read the codes of ``count`` recordings, int16 [10, frames] each, read-only.

    Raises:
        CodesError: missing, damaged, or of another codec.
    """
    try:
        with safe_open(path, "numpy") as file:
            if (file.metadata() or {}).get(_CODEC) != fingerprint:
                raise CodesError(f"{path}: of another codec")
            codes = [file.get_tensor(str(number)) for number in range(count)]
    except (OSError, SafetensorError) as error:
        raise CodesError(f"{path}: {error}") from None
    for array in codes:
        array.flags.writeable = False
    return codes
