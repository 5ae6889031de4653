"""The supervisor gives each process the time that it may take to end, and each hears that it shall."""

from __future__ import annotations

import os
import signal
import time
from configparser import RawConfigParser
from pathlib import Path

from common.config import resolve
from deploy.group.supervision import supervisor_config
from deploy.group.supervisord import Options


def test_no_process_is_killed_while_it_may_still_drain(tmp_path: Path) -> None:
    settings = ["gateway.drain_grace=3.5", "gateway.drain_timeout=300", "scheduler.drain_timeout=40"]
    config = resolve(None, [f"run_dir={tmp_path}", *settings])
    written = RawConfigParser()
    written.read_string(supervisor_config(config))
    waits = {name: written.getint(f"program:{name}", "stopwaitsecs") for name in ("gateway", "scheduler", "ar_worker")}
    assert waits["gateway"] > 303.5
    assert waits["scheduler"] > 40
    assert waits["ar_worker"] > 40


def test_a_child_that_is_asked_to_stop_before_it_has_become_its_program_stops() -> None:
    former = signal.signal(signal.SIGTERM, lambda *_: None)  # supervisord's, which notes it for its own loop
    try:
        child = Options().fork()
        if child == 0:
            time.sleep(5)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, former)
