"""Health, readiness and the end of the process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from gateway_fakes import TESTS, TINY, Player, post, run, serving
from prometheus_client import CollectorRegistry

from common import config as configuration
from common.config import resolve
from common.process import Process
from gateway import __main__ as gateway_process


def test_health_says_what_each_prober_wants_to_hear(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for method in ("GET", "POST"):
                async with client.http.request(method, "/v1/health") as reply:
                    assert (reply.status, await reply.json()) == (200, {"status": "ok"})
            async with client.get("/health") as reply:
                assert (reply.status, (await reply.json())["ready"]) == (200, True)
            for path in ("/healthz", "/livez", "/readyz", "/version"):
                async with client.get(path) as reply:
                    assert reply.status == 200
                    assert reply.headers["X-Request-Id"]
                    assert reply.headers["Cache-Control"] == "no-store"
            async with client.get("/v1/readyz") as reply:
                assert reply.status == 404

    run(test)


def test_readiness_follows_the_engine_and_names_reasons(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.reasons = {"ar_worker": "starting"}
            async with client.get("/readyz") as reply:
                assert (reply.status, (await reply.json())["reasons"]) == (503, {"ar_worker": "starting"})
                assert int(reply.headers["Retry-After"]) > 0
            async with client.get("/livez") as reply:
                assert reply.status == 200

    run(test)


def test_a_drain_refuses_what_is_new_and_waits_for_what_is_under_way(tmp_path: Path) -> None:
    async def test() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def plan(player: Player) -> None:
            player.give(1)
            begun.set()
            await go_on.wait()
            player.give(2)
            player.end()

        async with serving(tmp_path) as client:
            client.engine.plan = plan
            speaking = asyncio.create_task(post(client, text="hello", format="pcm"))
            await begun.wait()
            draining = asyncio.create_task(client.server.drain(10))
            await asyncio.sleep(0.01)
            async with client.get("/readyz") as reply:
                assert (reply.status, await reply.json()) == (
                    503,
                    {"status": "not ready", "reasons": {"gateway": "draining"}},
                )
            for path in ("/v1/tts", "/v1/codes"):
                reply, body = await post(client, path, text="hello")
                assert (reply.status, json.loads(body)["error"]["code"]) == (503, "draining")
                assert reply.headers["Retry-After"]
                assert reply.headers["Connection"] == "close"
            async with client.get("/livez") as reply:
                assert reply.status == 200
            assert not draining.done()
            go_on.set()
            _, body = await speaking
            assert len(body) == 2 * 3 * client.gateway.model.hop
            await draining

    run(test)


def test_a_drain_is_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        begun = asyncio.Event()

        async def plan(player: Player) -> None:
            begun.set()
            await asyncio.sleep(3600)

        async with serving(tmp_path) as client:
            client.engine.plan = plan
            speaking = asyncio.create_task(post(client, text="hello"))
            await begun.wait()
            await client.server.drain(0.05)
            assert not client.gateway.idle.is_set()
            await client.server.close()
            with pytest.raises(Exception, match=r"(?i)disconnect|closed"):
                await speaking
            assert client.engine.closed == ["cancelled"]

    run(test)


def start(run_dir: Path, *overrides: str) -> subprocess.Popen[bytes]:
    """A gateway process without a scheduler."""
    places = [f"run_dir={run_dir}", f"data_dir={run_dir / 'data'}", f"model.dir={TINY}", "gateway.port=0"]
    configuration.save(resolve(None, [*places, *overrides]))
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    command = [sys.executable, "-m", "gateway", "--run-dir", str(run_dir)]
    return subprocess.Popen(command, env=environment, cwd=TESTS.parent, stderr=subprocess.PIPE)


def address_of(process: subprocess.Popen[bytes], run_dir: Path) -> str:
    path = run_dir / "gateway.address"
    for _ in range(400):
        if path.exists():
            return path.read_text()
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    raise TimeoutError


def test_the_process_serves_without_a_scheduler_and_ends_in_order(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        address = address_of(process, tmp_path)
        with urllib.request.urlopen(f"http://{address}/livez", timeout=5) as reply:
            assert reply.status == 200
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://{address}/readyz", timeout=5)
        assert json.load(caught.value)["reasons"] == {"scheduler": "not connected"}
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as reply:
            assert b'shoal_up{process="gateway"} 1' in reply.read()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=10)
        assert process.returncode == 0, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("case", ["taken port", "no checkpoint"])
def test_what_prevents_the_start_is_said_and_the_status_is_1(tmp_path: Path, case: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        override = f"gateway.port={port}" if case == "taken port" else f"model.dir={tmp_path / 'nothing'}"
        process = start(tmp_path, override)
        try:
            _, log = process.communicate(timeout=20)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 1
    line = json.loads(log.splitlines()[-1])
    assert line["level"] == "error"
    assert (str(port) if case == "taken port" else "config.json") in line["msg"]


class Stuck:
    """A server whose drain takes for ever."""

    async def drain(self, seconds: float, grace: float) -> None:
        await asyncio.sleep(3600)


@pytest.mark.parametrize("case", ["second signal", "orphaned"])
def test_the_process_ends_at_once_after_a_second_signal_or_without_its_parent(tmp_path: Path, case: str) -> None:
    async def test() -> None:
        parent = os.getppid() if case == "second signal" else -1
        process = Process("gateway", resolve(), tmp_path, "incarnation", CollectorRegistry(), {}, parent)
        signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        serving_on = asyncio.create_task(gateway_process._serve(process, Stuck(), signals))
        if case == "second signal":
            signals.put_nowait(signal.SIGTERM)
            assert not (await asyncio.wait({serving_on}, timeout=0.05))[0]
            signals.put_nowait(signal.SIGINT)
        assert await asyncio.wait_for(serving_on, 1)

    run(test)
