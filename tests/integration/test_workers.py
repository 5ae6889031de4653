"""Several workers of a kind under one scheduler, and voices in the prefix cache, with the real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from common import config as configuration
from tests.integration.client import codes, gather, speak
from tests.integration.group import ROOT, Group, costs, eventually, free_port, running


def test_two_workers_of_each_kind_share_the_work_and_one_may_die() -> None:
    with running(*costs(step_ms=10.0, ar_worker__count=2, vocoder_worker__count=2, ar_worker__slots=4)) as group:

        async def kill_one() -> None:
            await asyncio.sleep(1.0)
            group.kill("ar_worker-2")

        calls = [speak(group.base, f"Stream {n}.", seed=n, max_new_tokens=300, streaming=False) for n in range(8)]
        *replies, _ = gather(*calls, kill_one())
        assert [reply.status for reply in replies] == [200] * 8, "those of the lost one go on with the other"
        assert all(reply.headers["X-Frames"] == "300" for reply in replies)
        eventually(group.ready, 60)
        again = gather(*(speak(group.base, f"Again {n}.", max_new_tokens=20, streaming=False) for n in range(8)))
        assert [reply.status for reply in again] == [200] * 8
        eventually(group.idle)


def test_look_ahead_and_its_synchronous_twin_give_the_same() -> None:
    texts = ["One.", "<|speaker:0|>Two turns.<|speaker:1|>Of one.", "Three."]

    def all_codes(look_ahead: bool) -> list[np.ndarray]:
        with running(*costs(scheduler__look_ahead=look_ahead, ar_worker__cost__frames=25)) as group:
            return [reply.codes for reply in gather(*(codes(group.base, text, seed=4) for text in texts))]

    for ahead, twin in zip(all_codes(True), all_codes(False), strict=True):
        assert np.array_equal(ahead, twin)


@pytest.mark.slow
def test_a_hit_in_the_prefix_cache_gives_the_same_codes_as_a_miss(mini: Group) -> None:
    text = "The same beginning, spoken by the same voice, over and over again, until the pages are shared. " * 2
    before = mini.metric("shoal_prefix_cache_hits_total")
    first, second = gather(codes(mini.base, text, seed=9))[0], gather(codes(mini.base, text, seed=9))[0]
    crowd = gather(*(codes(mini.base, text, seed=9) for _ in range(3)))
    assert mini.metric("shoal_prefix_cache_hits_total") - before > 3 * 100
    for other in (second, *crowd):
        assert np.array_equal(first.codes, other.codes)


def test_a_new_worker_is_used_at_once_and_a_leaving_one_drains() -> None:
    with running(*costs(step_ms=10.0, ar_worker__count=2, ar_worker__slots=2)) as group:

        async def ask_to_leave() -> float:
            await asyncio.sleep(0.5)
            began = time.monotonic()
            pid = group.pid("ar_worker-2")
            os.kill(pid, signal.SIGTERM)
            await asyncio.to_thread(eventually, lambda: group.pid("ar_worker-2") != pid, 30)
            return time.monotonic() - began

        calls = [speak(group.base, f"Stream {n}.", max_new_tokens=200, streaming=False) for n in range(4)]
        *replies, took = gather(*calls, ask_to_leave())
        assert [reply.status for reply in replies] == [200] * 4, "it finished what it had"
        assert took > 1.0
        eventually(group.ready, 60)


def test_a_worker_with_a_run_directory_of_its_own_joins_over_tcp(tmp_path: Path) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    tcp = costs(step_ms=10.0, ar_worker__slots=2, transport__scheduler=endpoint, transport__audio_host="127.0.0.1")
    with running(*tcp) as group:
        elsewhere = configuration.resolve(None, [*tcp[1::2], f"run_dir='{tmp_path}'"])
        configuration.save(elsewhere)
        command = [sys.executable, "-m", "ar_worker", "--run-dir", str(tmp_path), "--name", "ar_worker-b"]
        worker = subprocess.Popen(command, cwd=ROOT)
        try:
            eventually(lambda: group.metric("shoal_kv_pages") == 2 * 2048, 20)
            calls = [speak(group.base, f"Stream {n}.", max_new_tokens=100, streaming=False) for n in range(4)]
            assert [reply.status for reply in gather(*calls)] == [200] * 4
            worker.terminate()
            assert worker.wait(20) == 0, "let go by the scheduler"
            eventually(lambda: group.metric("shoal_kv_pages") == 2048)
        finally:
            worker.kill()
