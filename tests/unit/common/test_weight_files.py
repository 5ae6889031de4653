"""Weight files that are missing, truncated or something else are noticed before anything starts."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from common.checkpoint import CheckpointError
from common.config import ROOT
from common.weight_files import INDEX, check_weight_files


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A directory with a weight file of each kind."""
    save_file({"a": np.arange(1000, dtype=np.float32), "b": np.zeros((3, 5), np.int16)}, tmp_path / "model.safetensors")
    with zipfile.ZipFile(tmp_path / "codec.pth", "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 1000)
    check_weight_files(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["model.safetensors", "codec.pth"])
@pytest.mark.parametrize("kept", [0.0, 0.005, 0.01, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_named(whole: Path, name: str, kept: float) -> None:
    content = (whole / name).read_bytes()
    (whole / name).write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(CheckpointError, match=rf"{name}: .*truncated"):
        check_weight_files(whole)


def test_a_file_with_something_behind_it_is_named(whole: Path) -> None:
    with (whole / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(CheckpointError, match=r"model.safetensors: .*its header describes"):
        check_weight_files(whole)


@pytest.mark.parametrize("name", ["model.safetensors", "codec.pth"])
def test_a_pointer_of_git_lfs_is_named(whole: Path, name: str) -> None:
    (whole / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9124\n")
    with pytest.raises(CheckpointError, match=rf"{name}: a pointer of Git LFS"):
        check_weight_files(whole)


def test_a_shard_that_the_index_names_and_is_not_there_is_named(whole: Path) -> None:
    shards = {"a": "model.safetensors", "c": "model-00002-of-00002.safetensors"}
    (whole / INDEX).write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(CheckpointError, match=r"model-00002-of-00002.safetensors: No such file"):
        check_weight_files(whole)
    (whole / INDEX).write_text("{")
    with pytest.raises(CheckpointError, match="not an index of weights"):
        check_weight_files(whole)


@pytest.mark.parametrize("directory", ["models/mini", "tests/data/checkpoint_tiny"])
def test_checkpoints_of_the_project_are_whole(directory: str) -> None:
    check_weight_files(ROOT / directory)
