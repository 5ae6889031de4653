"""What a checkpoint says of its sampling and its text is read, and what can't be is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.checkpoint import CheckpointError, GenerationConfig, load_generation_config


def test_without_the_file_or_with_nulls_there_is_no_bound(tmp_path: Path) -> None:
    assert load_generation_config(tmp_path) == GenerationConfig()
    (tmp_path / "generation_config.json").write_text('{"turns": null, "normalize": null, "do_sample": true}')
    assert load_generation_config(tmp_path) == GenerationConfig()


@pytest.mark.parametrize("text", ['{"normalize": "xx"}', '{"turn_bytes": 5}', '{"turns": 0}'])
def test_values_that_can_not_be_are_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"generation_config\.json.*" + text.split('"')[1]):
        load_generation_config(tmp_path)
