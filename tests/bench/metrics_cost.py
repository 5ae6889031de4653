"""What metrics cost while 64 streams are spoken, as a share of one core.

    python -m tests.bench.metrics_cost

Events are counted in a real run (cost models of an H200, readers that take all they get), and their rate is multiplied
with what one costs, timed here with the very calls that the processes make. To that comes what a scrape costs all
processes, by their own processor time, at the interval of deploy/observe/prometheus/prometheus.yml.
"""

from __future__ import annotations

import argparse
import re
import time
import timeit
import urllib.request
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry

from common.checkpoint import load_codec_config
from common.config import Config
from common.messages import PROMPT_ROWS, ArWorkerHello, Sampling, Submit, VocoderWorkerHello
from gateway.observe.metrics import GatewayMetrics, Playback
from scheduler.observe.metrics import SchedulerMetrics
from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker, Sequence, Step
from scheduler.workers.vocoder_worker import Call, CallItem, VocoderWorker
from tests.integration.client import gather, speak
from tests.integration.group import ROOT, Group, running
from vocoder_worker.cost_executor import CostExecutor
from vocoder_worker.metrics import VocoderMetrics

FRAMES = 400  # of each stream
SCRAPES = 20
LIMIT = 0.02  # of a core
CALLS, REPEATS = 2000, 5


class Event(NamedTuple):
    """``family``: the counter that grows by one with each event. ``count``: what is called for it."""

    name: str
    family: str
    count: Callable[[], object]


class Cost(NamedTuple):
    name: str
    per_second: float
    seconds: float  # each

    @property
    def share(self) -> float:
        """Of a core."""
        return self.per_second * self.seconds


def measure(streams: int) -> list[Cost]:
    """The cost of each kind of event, and of scraping, while so many streams are spoken."""
    executors = ["--set", "ar_worker.executor=cost", "--set", "vocoder_worker.executor=cost"]
    room = ["--set", f"ar_worker.slots={streams}", "--set", f"ar_worker.pages={64 * streams}"]
    with running(*executors, *room, "--set", f"vocoder_worker.slots={2 * streams}") as group:
        speak_all(group, 4)  # warm up
        before = group.metrics()
        began = time.monotonic()
        speak_all(group, streams)
        took = time.monotonic() - began
        grown = {name: value - before.get(name, 0.0) for name, value in group.metrics().items()}
        scrape = scrape_seconds(group)
    costs = [Cost(event.name, total(grown, event.family) / took, seconds_of(event)) for event in events()]
    return [*costs, Cost("scrape", 1 / scrape_interval(), scrape)]


def speak_all(group: Group, streams: int) -> None:
    texts = [f"Listener {number}." for number in range(streams)]
    replies = gather(*(speak(group.base, text, format="pcm", max_new_tokens=FRAMES) for text in texts))
    assert all(reply.status == 200 and not reply.broken for reply in replies)


def total(samples: dict[str, float], name: str) -> float:
    return sum(value for key, value in samples.items() if key.split("{")[0] == name)


def events() -> list[Event]:
    """Every place at which something is counted, with the calls made there."""
    scheduler, gateway = SchedulerMetrics(CollectorRegistry()), GatewayMetrics(CollectorRegistry())
    vocoder = VocoderMetrics(CollectorRegistry(), codec())
    playback = Playback(gateway, 0.0, 24_000)

    request, ar_worker, vocoder_worker, step, call = scheduled()

    def admitted() -> None:
        scheduler.admitted(request, "ar_worker", "vocoder_worker", 100, 0.01)
        scheduler.prefilled(request, 0.05)
        scheduler.ended(request)

    def called() -> None:
        scheduler.called(vocoder_worker, call, 0.005, 0.0)
        vocoder.padding.inc(0)

    def chunk() -> None:
        playback.chunk(time.monotonic(), 12_000, 24_000)
        playback.sent(0.0)

    def answered() -> None:
        gateway.http_requests.labels("/v1/tts", "POST", "200").inc()
        gateway.requests.labels("tts", "pcm", "length").inc()
        gateway.e2e_latency.observe(10.0)
        gateway.input_characters.inc(100)
        gateway.in_flight.set(64)
        playback.ended(whole=True)
        for counter in (gateway.key_requests, gateway.key_characters, gateway.key_audio_seconds):
            counter.labels("anonymous").inc()

    return [
        Event("AR step", "shoal_step_seconds_count", lambda: scheduler.stepped(ar_worker, step, 0.01, 0.0)),
        Event("vocoder call", "shoal_vocoder_call_seconds_count", called),
        Event("chunk sent", "shoal_audio_chunk_gap_seconds_count", chunk),
        Event("credit stall", "shoal_credit_stalls_total", lambda: scheduler.stalled(request)),
        Event("admission and end", "shoal_request_queue_time_seconds_count", admitted),
        Event("HTTP request", "shoal_requests_total", answered),
    ]


def scheduled() -> tuple[Request, ArWorker, VocoderWorker, Step, Call]:
    """A request that has ended, a step of 64 rows, and a call of 200 frames of 32 streams."""
    sampling = Sampling(0.8, 0.8, 0.8, 30, seed=1)
    body = Submit("request", "audio", True, sampling, 400, [200], None)
    request = Request("gateway", body, np.zeros((PROMPT_ROWS, 200), np.int32), 0.0)
    request.admitted_at, request.reason = 0.01, "length"
    ar_worker = ArWorker("a", 1, ArWorkerHello("ar_worker", 64, 4096, 16, 4096, 0), 0.05)
    vocoder_worker = VocoderWorker("v", 1, VocoderWorkerHello("vocoder_worker", 64, ""))
    sequence = Sequence(request, ar_worker, [], [], 20)
    step = Step(0, [(sequence, 0, 200)] * 64, 0, [], 0.0)
    return request, ar_worker, vocoder_worker, step, Call(0, [CallItem(request, 10)] * 32, 200, 200, 0.0)


def codec() -> CostExecutor:
    config = Config()
    return CostExecutor(load_codec_config(config.model_dir), 1, config.vocoder_worker.cost)


def seconds_of(event: Event) -> float:
    return min(timeit.repeat(event.count, number=CALLS, repeat=REPEATS)) / CALLS


def scrape_seconds(group: Group) -> float:
    """Processor time of all processes for one scrape."""
    before = processor_seconds(group)
    for _ in range(SCRAPES):
        with urllib.request.urlopen(f"{group.base}/metrics", timeout=10) as reply:
            reply.read()
    return (processor_seconds(group) - before) / SCRAPES


def processor_seconds(group: Group) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in group.tree())


def scrape_interval() -> float:
    text = (ROOT / "deploy" / "observe" / "prometheus" / "prometheus.yml").read_text()
    found = re.search(r"scrape_interval: (\d+)s", text)
    assert found is not None
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    costs = measure(parser.parse_args().streams)
    for cost in costs:
        print(f"{cost.name:18} {cost.per_second:8.1f}/s x {1e6 * cost.seconds:8.1f} us = {cost.share:.3%} of a core")
    print(f"{'in all':18} {sum(cost.share for cost in costs):.2%} of a core (limit: {LIMIT:.0%})")


if __name__ == "__main__":
    main()
