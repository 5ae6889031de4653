"""The supervisor gives each process the time that it may take to end."""

from __future__ import annotations

from configparser import RawConfigParser
from pathlib import Path

from common.config import resolve
from deploy.supervision import supervisor_config


def test_no_process_is_killed_while_it_may_still_drain(tmp_path: Path) -> None:
    settings = ["gateway.drain_grace=3.5", "gateway.drain_timeout=300", "scheduler.drain_timeout=40"]
    config = resolve(None, [f"run_dir={tmp_path}", *settings])
    written = RawConfigParser()
    written.read_string(supervisor_config(config))
    waits = {name: written.getint(f"program:{name}", "stopwaitsecs") for name in ("gateway", "scheduler", "ar_worker")}
    assert waits["gateway"] > 303.5
    assert waits["scheduler"] > 40
    assert waits["ar_worker"] > 40
