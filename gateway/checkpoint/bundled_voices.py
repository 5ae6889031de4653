"""Bundled voices of a checkpoint: ``voices/NAME.safetensors`` and ``voices/NAME.txt`` in its directory.

The tensor ``codes`` is int16 [10, frames], the text what is said in it. ``voices/voices.json`` may name a default:
``{"default": "NAME"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from safetensors import SafetensorError
from safetensors.numpy import load_file

from common.checkpoint import CheckpointError
from common.messages import Array
from gateway.checkpoint.prompt import Prompts, Reference
from gateway.checkpoint.voice_ids import RULE, is_id

FOLDER, INDEX = "voices", "voices.json"


class BundledVoices(NamedTuple):
    """Bundled voices. ``default``: for requests without a voice; None: the model chooses."""

    voices: Mapping[str, Reference]
    default: str | None


NO_VOICES = BundledVoices({}, None)


class _Index(Struct, frozen=True, forbid_unknown_fields=True):
    default: str | None = None


def load(checkpoint: Path, codebook_sizes: list[int], prompts: Prompts) -> BundledVoices:
    """Load the voices of a checkpoint directory; most have none.

    Raises:
        CheckpointError: naming the file and what is wrong with it.
    """
    folder = checkpoint / FOLDER
    if not folder.is_dir():
        return NO_VOICES
    voices = {path.stem: _voice(path, codebook_sizes, prompts) for path in sorted(folder.glob("*.safetensors"))}
    default = _default(folder / INDEX)
    if default is not None and default not in voices:
        raise CheckpointError(f"{folder / INDEX}: default {default!r} is none of {', '.join(voices) or 'no voices'}")
    return BundledVoices(voices, default)


def _default(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Index).default
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def _voice(path: Path, codebook_sizes: list[int], prompts: Prompts) -> Reference:
    if not is_id(path.stem):
        raise CheckpointError(f"{path}: the name {RULE}")
    text_path = path.with_suffix(".txt")
    try:
        text, codes = text_path.read_text(encoding="utf-8"), load_file(path)["codes"]
    except (OSError, UnicodeDecodeError, SafetensorError, KeyError) as error:
        raise CheckpointError(f"{path} and {text_path.name}: {error}") from None
    if not text.strip() or prompts.reserved_token(text):
        raise CheckpointError(f"{text_path}: blank, or with a token that is reserved for the model")
    _check_codes(codes, codebook_sizes, path)
    codes.flags.writeable = False
    return Reference(text, codes)


def _check_codes(codes: Array, codebook_sizes: list[int], path: Path) -> None:
    if codes.dtype != np.int16 or codes.ndim != 2 or len(codes) != len(codebook_sizes) or not codes.shape[1]:
        raise CheckpointError(f"{path}: codes {codes.dtype} {list(codes.shape)}, not int16 [10, frames]")
    if codes.min() < 0 or (codes.max(axis=1) >= codebook_sizes).any():
        raise CheckpointError(f"{path}: codes beyond their codebooks")
