"""Metrics: what a listener hears is measured, and the merged exposition is valid."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from gateway_fakes import HOP, MINI, RATE, Client, Player, eventually, post, run, serving, speak
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from common import metrics as shared
from gateway.checkpoint import served_model
from gateway.observe.merge import merge
from gateway.observe.metrics import CancelCause, GatewayMetrics, Playback

MINI_MODEL = served_model.load(MINI)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    found = registry.get_sample_value(name, labels)
    assert found is not None, name
    return found


def test_a_listener_s_clock_counts_each_standstill_once() -> None:
    """One second of sound each; the second chunk is 0.5 s late, the third in time although later than planned first."""
    registry = CollectorRegistry()
    playback = Playback(GatewayMetrics(registry), arrival=10.0, rate=100)
    playback.chunk(10.2, 100, 200)
    playback.chunk(11.7, 100, 200)  # the sound before had run out at 11.2
    playback.chunk(12.6, 100, 200)  # and now runs out at 12.7
    playback.ended(whole=True)
    assert value(registry, "shoal_time_to_first_audio_seconds_sum") == pytest.approx(0.2)
    assert value(registry, "shoal_audio_chunk_gap_seconds_sum") == pytest.approx(2.4)
    assert value(registry, "shoal_audio_chunk_lateness_seconds_count") == 2
    assert value(registry, "shoal_audio_chunk_lateness_seconds_sum") == pytest.approx(0.5)
    assert value(registry, "shoal_audio_chunk_lateness_seconds_bucket", le="0.0") == 1
    assert value(registry, "shoal_audio_underrun_seconds_sum") == pytest.approx(0.5)
    assert value(registry, "shoal_audio_seconds_total") == 3
    assert value(registry, "shoal_audio_bytes_total") == 600
    assert value(registry, "shoal_real_time_factor_ratio_sum") == pytest.approx(2.6 / 3)


def test_the_real_time_factor_leaves_out_what_the_client_held_up() -> None:
    registry = CollectorRegistry()
    playback = Playback(GatewayMetrics(registry), arrival=0.0, rate=100)
    playback.chunk(0.5, 100, 200)
    playback.sent(3.0)
    playback.chunk(3.6, 100, 200)
    playback.sent(9.0)  # after the last chunk was ready: it held nothing up
    playback.ended(whole=True)
    assert value(registry, "shoal_real_time_factor_ratio_sum") == pytest.approx(0.6 / 2)


def test_a_rest_for_want_of_text_is_neither_a_gap_nor_late_nor_slow() -> None:
    registry = CollectorRegistry()
    playback = Playback(GatewayMetrics(registry), arrival=0.0, rate=100)
    playback.chunk(0.5, 100, 200)
    playback.chunk(9.5, 100, 200, rested=8.9)  # the text had run out at 0.6
    playback.chunk(11.0, 100, 200)  # 0.5 s late
    playback.ended(whole=True)
    assert value(registry, "shoal_audio_chunk_gap_seconds_count") == 1
    assert value(registry, "shoal_audio_underrun_seconds_sum") == pytest.approx(0.5)
    assert value(registry, "shoal_real_time_factor_ratio_sum") == pytest.approx((11.0 - 8.9) / 3)


def test_a_stream_that_broke_off_has_no_real_time_factor() -> None:
    registry = CollectorRegistry()
    playback = Playback(GatewayMetrics(registry), arrival=0.0, rate=100)
    playback.chunk(0.5, 100, 200)
    playback.ended(whole=False)
    assert value(registry, "shoal_real_time_factor_ratio_count") == 0
    assert value(registry, "shoal_audio_underrun_seconds_count") == 1


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 300)), min_size=1, max_size=20))
def test_underrun_is_how_much_longer_listening_took_than_the_sound_lasts(chunks: list[tuple[float, int]]) -> None:
    registry = CollectorRegistry()
    playback = Playback(GatewayMetrics(registry), arrival=0.0, rate=100)
    now = heard_until = first = chunks[0][0]
    for index, (gap, samples) in enumerate(chunks):
        now += gap if index else 0
        heard_until = max(heard_until, now) + samples / 100
        playback.chunk(now, samples, 1)
    playback.ended(whole=True)
    sound = sum(samples for _, samples in chunks) / 100
    underrun = value(registry, "shoal_audio_underrun_seconds_sum")
    assert underrun == pytest.approx(heard_until - first - sound, abs=1e-6)


def test_requests_are_counted_by_pattern_and_outcome(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            registry = client.registry
            await post(client, text="hello", format="pcm")
            client.engine.plan = speak()
            await post(client, text="hello", format="pcm")
            await post(client, text="")
            async with client.get("/no/such/path/12345"):
                pass
            counted = {"api": "tts", "format": "pcm"}
            assert value(registry, "shoal_requests_total", **counted, outcome="stop") == 1
            assert value(registry, "shoal_requests_total", **counted, outcome="error") == 1
            http = {"route": "/v1/tts", "method": "POST"}
            assert value(registry, "shoal_http_requests_total", **http, code="200") == 1
            assert value(registry, "shoal_http_requests_total", **http, code="400") == 1
            unmatched = {"route": "unmatched", "method": "GET", "code": "404"}
            assert value(registry, "shoal_http_requests_total", **unmatched) == 1
            assert value(registry, "shoal_audio_bytes_total") == 2 * 3 * HOP
            assert value(registry, "shoal_audio_seconds_total") == pytest.approx(3 * HOP / RATE)
            assert value(registry, "shoal_input_characters_total") == 10
            assert value(registry, "shoal_e2e_request_latency_seconds_count") == 2
            assert b"12345" not in generate_latest(registry)

    run(test)


def test_speech_that_ends_early_stands_out_by_its_rate(tmp_path: Path) -> None:
    """Forty words in ten frames: over eighty characters per second, where 15 are usual."""

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(10)
            await post(client, text="word " * 40, format="pcm")
            name = "shoal_speech_rate_characters_per_second"
            assert value(client.registry, f"{name}_count") == 1
            assert value(client.registry, f"{name}_bucket", le="80.0") == 0

    run(test)


@pytest.mark.parametrize("cause", ["disconnect", "superseded", "deadline"])
def test_what_is_given_up_is_counted_by_its_cause(tmp_path: Path, cause: str) -> None:
    async def test() -> None:
        async with serving(tmp_path, first_audio_deadline=0.2 if cause == "deadline" else 20.0) as client:
            client.engine.plan = never
            first = asyncio.create_task(once(client))
            await eventually(lambda: client.engine.streams)
            if cause == "disconnect":
                first.cancel()
            elif cause == "superseded":
                client.engine.plan = speak(3)
                await once(client)
            await asyncio.wait([first])
            await eventually(lambda: cancels(client.registry))
            assert cancels(client.registry) == {cause: 1}
            assert value(client.registry, "shoal_client_disconnects_total") == (cause == "disconnect")

    run(test)


def test_speech_that_the_server_breaks_off_is_no_disconnect(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, client.http.ws_connect("/v1/tts/live") as socket:
            client.engine.plan = never
            for message in ({"event": "start", "request": {"text": "Some words."}}, {"event": "stop"}):
                await socket.send_bytes(msgspec.msgpack.encode(message))
            await eventually(lambda: client.engine.streams)
            await socket.send_bytes(b"no msgpack")
            assert msgspec.msgpack.decode(await socket.receive_bytes())["event"] == "error"
            await eventually(lambda: client.gateway.timelines.ended)
            assert value(client.registry, "shoal_requests_total", api="live", format="mp3", outcome="cancelled") == 1
            assert not cancels(client.registry)

    run(test)


def test_a_client_that_reads_nothing_is_counted_as_slow(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, slow_client_timeout=0.2) as client:
            client.engine.plan = speak(*[500] * 40)
            async with client.post("/v1/tts", json={"text": "hello", "format": "pcm"}):
                await eventually(lambda: cancels(client.registry), 5)
            assert cancels(client.registry) == {"slow_client": 1}

    run(test)


async def never(player: Player) -> None:
    """A plan: nothing comes."""


async def once(client: Client) -> None:
    headers = {"Idempotency-Key": "once"}
    async with client.post("/v1/tts", json={"text": "hello", "format": "pcm"}, headers=headers) as reply:
        await reply.read()


def cancels(registry: CollectorRegistry) -> dict[str, float]:
    """Causes that were counted at all."""
    causes = get_args(CancelCause)
    counts = {cause: value(registry, "shoal_cancels_total", cause=cause) for cause in causes}
    return {cause: count for cause, count in counts.items() if count}


def exposition(amount: int) -> str:
    registry = CollectorRegistry()
    things = Counter("shoal_things_total", 'with "quotes" and\nlines', ["kind"], registry=registry)
    things.labels('a"b\\ c{d}').inc(amount)
    Gauge("process_open_fds", "plain", registry=registry).set(amount)
    Histogram("shoal_step_seconds", "a histogram", buckets=(0.1, 1), registry=registry).observe(0.5)
    return generate_latest(registry).decode()


def test_a_merged_exposition_is_valid_and_loses_nothing() -> None:
    own = '# HELP shoal_age_seconds Of others.\n# TYPE shoal_age_seconds gauge\nshoal_age_seconds{process="c"} 4\n'
    merged = merge({"a": exposition(1), "b": exposition(2) + own})
    for kind in ("HELP", "TYPE"):
        heads = [line.split()[2] for line in merged.splitlines() if line.startswith(f"# {kind} ")]
        assert len(heads) == len(set(heads))
    samples = {}
    for family in text_string_to_metric_families(merged):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples
            samples[key] = sample.value
            assert "process" in sample.labels
    for process, amount in (("a", 1), ("b", 2)):
        labels = (("kind", 'a"b\\ c{d}'), ("process", process))
        assert samples[("shoal_things_total", labels)] == amount
        assert samples[("process_open_fds", (("process", process),))] == amount
        assert samples[("shoal_step_seconds_bucket", (("le", "+Inf"), ("process", process)))] == 1
    assert samples[("shoal_age_seconds", (("process", "c"),))] == 4


def test_metrics_of_all_processes_are_fetched_and_the_dead_are_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            shared.serve(client.registry, tmp_path, "gateway")
            shared.serve(shared.new_registry(), tmp_path, "scheduler")
            (tmp_path / "ar_worker.metrics").write_text("1")
            (tmp_path / "vocoder_worker.metrics").write_text("no port")
            (tmp_path / "supervisord.pid").write_text("1")
            async with client.get("/metrics") as reply:
                assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                families = {family.name: family for family in text_string_to_metric_families(await reply.text())}
            up = {sample.labels["process"]: sample.value for sample in families["shoal_up"].samples}
            assert up == {"gateway": 1, "scheduler": 1, "ar_worker": 0, "vocoder_worker": 0}
            for family, process in (("python_info", "scheduler"), ("shoal_audio_bytes", "gateway")):
                assert {sample.labels["process"] for sample in families[family].samples} == {process}

    run(test)


def test_a_scrape_holds_up_no_sound(tmp_path: Path) -> None:
    """Processes with much to tell and one that hangs are scraped again and again, while others are answered."""

    async def test() -> None:
        async with serving(tmp_path) as client:
            for process in ("gateway", "scheduler", "ar_worker"):
                shared.serve(large_registry(), tmp_path, process)
            with socket.create_server(("127.0.0.1", 0)) as hangs:
                (tmp_path / "vocoder_worker.metrics").write_text(str(hangs.getsockname()[1]))
                scrapes = asyncio.gather(*(scrape(client) for _ in range(8)))
                waits = []
                while not scrapes.done():
                    began = time.monotonic()
                    async with client.get("/healthz") as reply:
                        await reply.read()
                    waits.append(time.monotonic() - began)
                    await asyncio.sleep(0.002)
            sizes = await scrapes
            assert min(sizes) > 300_000
            assert len(waits) > 20
            assert statistics.quantiles(waits, n=20)[-1] < 0.05  # 95 %; the machine may be busy with something else

    run(test)


async def scrape(client: Client) -> int:
    async with client.get("/metrics") as reply:
        return len(await reply.read())


def large_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    steps = Histogram("shoal_step_seconds", "Many series.", ["kind"], registry=registry)
    for kind in range(200):
        steps.labels(str(kind)).observe(0.1)
    return registry


def test_scrapes_at_the_same_time_are_one(tmp_path: Path) -> None:
    fetched = []

    class Slow(Collector):
        def collect(self) -> Iterable[Metric]:
            fetched.append(time.monotonic())
            time.sleep(0.2)
            return []

    async def test() -> None:
        async with serving(tmp_path) as client:
            registry = CollectorRegistry()
            registry.register(Slow())
            fetched.clear()
            shared.serve(registry, tmp_path, "scheduler")
            await asyncio.gather(*(scrape(client) for _ in range(20)))
            assert len(fetched) == 1
            await scrape(client)
            assert len(fetched) == 2

    run(test)
