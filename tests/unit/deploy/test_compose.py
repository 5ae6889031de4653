"""The compose file builds from the root of the repository, with a Containerfile that is there."""

from __future__ import annotations

from pathlib import Path

import yaml

from common.config import ROOT

COMPOSE = ROOT / "deploy" / "targets" / "container" / "compose.yaml"


def test_the_image_is_built_from_the_repository() -> None:
    build = yaml.safe_load(COMPOSE.read_text())["services"]["shoal"]["build"]
    context = (COMPOSE.parent / Path(build["context"])).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()
