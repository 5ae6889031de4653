"""The scheduler's metrics, read from the registry while the core serves fake workers."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from common.config import Scheduler as Settings
from common.messages import ArWorkerHello, GatewayHello
from scheduler.observe.metrics import SchedulerMetrics
from scheduler.peers import Peers
from tests.unit.scheduler.world import FRAME_SECONDS, World


class Counted(World):
    """A world with metrics."""

    def __init__(self, settings: Settings) -> None:
        self.registry = CollectorRegistry()
        metrics = SchedulerMetrics(self.registry)
        super().__init__(settings, metrics)
        metrics.watch(self.core, dict, lambda: 0)
        self.join_ar(slots=2, pages=256, page_size=4, context=512)
        self.join_vocoder()

    def value(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(f"shoal_{name}", labels)
        assert value is not None, name
        return value


def test_prefill_time_runs_from_admission_to_the_first_codes() -> None:
    world = Counted(Settings(prefill_budget=8, look_ahead=False))
    world.submit([40], [3])
    world.settle()
    steps = world.value("step_seconds_count", phase="prefill")
    assert steps == 5  # of 8 positions each
    assert world.value("request_prefill_time_seconds_count") == 1
    assert world.value("request_prefill_time_seconds_sum") == pytest.approx(5 * 0.01)
    assert world.value("step_seconds_count", phase="decode") == 3
    assert world.value("prompt_tokens_total") == 40


def test_a_turn_without_a_frame_does_not_make_the_prompt_of_the_next_the_first() -> None:
    world = Counted(Settings(look_ahead=False))
    request = world.submit([4, 4], [0, 3])
    world.step()
    (record,) = world.journal.recent(0, world.now, work=False).requests
    first_codes = record.first_codes
    world.settle()
    assert world.ended[request].frames == 3
    assert world.value("request_prefill_time_seconds_count") == 1
    assert record.first_codes == first_codes == 0.01


def test_each_time_a_client_holds_codes_back_is_one_credit_stall() -> None:
    world = Counted(Settings(unread_seconds=10 * FRAME_SECONDS))
    request = world.submit([4], [35])
    while world.step() or world.call():
        pass
    assert world.sound[request] == 10
    assert world.value("credit_stalls_total") == 0  # not yet over
    for read, stalls in ((10, 1), (10, 1), (20, 2), (30, 3), (35, 3)):
        world.core.credit(request, read)
        world.carry_out()
        while world.step() or world.call():
            pass
        assert world.value("credit_stalls_total") == stalls
    assert world.ended[request].reason == "stop"


def test_a_client_that_keeps_up_holds_nothing_back() -> None:
    world = Counted(Settings(unread_seconds=10 * FRAME_SECONDS, max_chunk=5))
    world.submit([4], [35])
    while world.call() or world.step():
        world.read_all()
    assert world.value("credit_stalls_total") == 0
    assert world.value("requests_finished_total", reason="stop") == 1


def test_pages_and_slots_are_those_of_the_workers() -> None:
    world = Counted(Settings())
    assert world.value("kv_pages", state="free") == 256
    world.submit([8], [30])
    assert world.value("ar_slots", state="used") == world.value("vocoder_slots", state="used") == 1
    assert world.value("kv_cache_usage_ratio") == world.value("kv_pages", state="active") / 256 > 0
    world.settle()
    assert world.value("ar_slots", state="used") == world.value("vocoder_slots", state="used") == 0


def test_the_age_of_a_worker_that_was_lost_grows_until_it_is_back() -> None:
    peers = Peers(["ar_worker"])
    peers.register("a1", ArWorkerHello("ar_worker", 1, 1, 1, 1, 0), now=10.0)
    peers.register("g1", GatewayHello("gateway"), now=10.0)
    peers.register("b1", ArWorkerHello("ar_worker-of-another-machine", 1, 1, 1, 1, 0), now=10.0)
    peers.heard("a1", 11.0)
    assert peers.ages(12.0) == {"ar_worker": 1.0, "gateway": 2.0, "ar_worker-of-another-machine": 2.0}
    for incarnation in ("a1", "g1", "b1"):
        peers.remove(incarnation, "lost")
    assert peers.ages(30.0) == {"ar_worker": 19.0}
    peers.register("a2", ArWorkerHello("ar_worker", 1, 1, 1, 1, 0), now=31.0)
    assert peers.ages(31.5) == {"ar_worker": 0.5}
