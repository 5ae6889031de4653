"""The process group as a whole: start, stop, side by side, idle."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.client import gather, speak
from tests.integration.group import PROGRAMS, ROOT, Group, costs, running


def test_four_processes_write_their_pids_themselves(fast: Group) -> None:
    tree = {process.pid: " ".join(process.cmdline()) for process in fast.tree()}
    for program in PROGRAMS:
        assert f"-m {program}" in tree[fast.pid(program)]


def test_metrics_of_every_process_are_merged(fast: Group) -> None:
    gather(speak(fast.base, "Count me.", max_new_tokens=5))
    samples = fast.metrics()
    for program in PROGRAMS:
        assert samples[f'shoal_up{{process="{program}"}}'] == 1
        assert fast.metric("process_cpu_seconds_total", process=program) > 0
    for name in ("request_queue_time", "time_to_first_audio", "audio_chunk_gap", "audio_chunk_lateness"):
        assert fast.metric(f"shoal_{name}_seconds_count") > 0
    pages = [fast.metric("shoal_kv_pages", state=state) for state in ("active", "cached", "free")]
    assert sum(pages) == 2048
    assert fast.metric("shoal_requests_finished_total", reason="length") > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_group_and_leaves_nothing(number: int) -> None:
    with running(*costs()) as group:
        tree = group.tree()
        assert group.stop(number) == 0
        _, alive = psutil.wait_procs(tree, timeout=5)
        assert not alive


def test_two_groups_run_side_by_side(fast: Group) -> None:
    with running(*costs()) as other:
        assert other.address != fast.address
        replies = gather(speak(fast.base, "Here."), speak(other.base, "There."))
        assert [reply.status for reply in replies] == [200, 200]


def test_the_configuration_is_checked_before_anything_starts(tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        command = [str(ROOT / "deploy" / "run_all.sh"), "--run-dir", str(tmp_path), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        return done.stderr

    assert "prot" in refused("--set", "gateway.prot=1")
    assert "config.json" in refused("--model", str(tmp_path))
    assert "gateway.port" in refused("--port", "99999")
    file = tmp_path / "shoal.toml"
    file.write_text("[scheduler]\nmax_wating = 3\n")
    assert "max_wating" in refused("--config", str(file))


@pytest.mark.slow
def test_an_idle_group_uses_next_to_no_processor_time(mini: Group) -> None:
    gather(speak(mini.base, "Warm."))
    time.sleep(1.0)
    seconds = 10.0
    before = processor_seconds(mini)
    time.sleep(seconds)
    assert (processor_seconds(mini) - before) / seconds < 0.03


def processor_seconds(group: Group) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in group.tree())
