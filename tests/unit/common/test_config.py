"""Configuration: defaults, file, overrides; unknown keys and bad values are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import config as configuration
from common.config import Config, ConfigError, resolve


def test_defaults_need_nothing() -> None:
    config = resolve()
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 8080)
    assert config.model_dir.is_dir()


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "shoal.toml"
    file.write_text("[gateway]\nport = 9000\nhost = '0.0.0.0'\n[ar_worker.cost]\nbase_ms = 2.5\n")
    config = resolve(file, ["gateway.port=9001", "ar_worker.executor=cost", "scheduler.look_ahead=false"])
    assert (config.gateway.port, config.gateway.host) == (9001, "0.0.0.0")
    assert config.ar_worker.cost.base_ms == 2.5
    assert config.ar_worker.executor == "cost"
    assert config.scheduler.look_ahead is False


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("gateway.prot=1", "prot"),
        ("gatway.port=1", "gatway"),
        ("gateway.port=70000", "gateway.port"),
        ("gateway.port=many", "gateway.port"),
        ("ar_worker.executor=magic", "ar_worker.executor"),
        ("scheduler.max_waiting=0", "scheduler.max_waiting"),
        ("gateway", "section.key=value"),
        (".=1", "section.key=value"),
        ("gateway.port.deep=1", "gateway.port"),
    ],
)
def test_what_is_wrong_is_named(override: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        resolve(None, [override])


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[gateway\n")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        resolve(file)
    with pytest.raises(ConfigError, match="absent"):
        resolve(tmp_path / "absent")


def test_processes_read_what_was_resolved(tmp_path: Path) -> None:
    config = resolve(None, [f"run_dir='{tmp_path}'", "gateway.port=0"])
    configuration.save(config)
    loaded: Config = configuration.load(tmp_path)
    assert loaded == config


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (
            ["ar_worker.page_size=64", "scheduler.prefill_budget=32"],
            ["scheduler.prefill_budget", "ar_worker.page_size"],
        ),
        (["scheduler.prefill_budget=15"], ["scheduler.prefill_budget", "ar_worker.page_size"]),
        (["scheduler.max_chunk=1"], ["scheduler.max_chunk", "scheduler.min_chunk"]),
        (["scheduler.max_chunk=7"], ["scheduler.max_chunk", "scheduler.max_first_chunk"]),
        (["ar_worker.slots=8", "ar_worker.pages=7"], ["ar_worker.pages", "ar_worker.slots"]),
    ],
)
def test_settings_that_contradict_each_other_are_refused_and_both_named(overrides: list[str], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(overrides=overrides)
    assert all(name in str(caught.value) for name in named)
    resolve(overrides=["ar_worker.page_size=32", "scheduler.prefill_budget=32"])
