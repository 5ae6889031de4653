"""docs/operations.md names settings, metrics, files and statuses as the code has them."""

from __future__ import annotations

import re

from common.config import ROOT, resolve
from common.device_faults import EXIT_CODE

PAGE = (ROOT / "docs" / "operations.md").read_text()
SECTIONS = "gateway|scheduler|ar_worker|vocoder_worker|supervisor|transport"
NO_SETTINGS = {"gateway.address", "gateway.admin_address"}


def test_every_setting_that_is_named_exists() -> None:
    config = resolve()
    named = set(re.findall(rf"`((?:{SECTIONS})\.[a-z_]+)", PAGE)) - NO_SETTINGS
    assert len(named) > 15
    for name in named:
        section, key = name.split(".")
        assert hasattr(getattr(config, section), key), name


def test_every_metric_that_is_named_exists() -> None:
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    for name in set(re.findall(r"`(shoal_[a-z_]+)`", PAGE)):
        assert f"`{name}`" in metrics, name


def test_every_file_that_is_named_exists() -> None:
    for path in set(re.findall(r"\b(?:deploy|common)/[a-z_/.]*[a-z]", PAGE)):
        assert (ROOT / path).exists(), path


def test_the_exit_status_of_a_device_fault_is_the_one_that_is_told() -> None:
    assert f"exits with status **{EXIT_CODE}**" in PAGE
