"""The simulator: no frame is lost, runs are reproducible, and clocks and devices follow their formulas."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.config import Scheduler as Settings
from common.cost_models import COST_MODELS, CostModel
from scheduler.simulate import options
from scheduler.simulate.__main__ import main
from scheduler.simulate.cluster import Cluster, Sizes
from scheduler.simulate.devices import Gpu, Job
from scheduler.simulate.measure import Listener, Percentiles, Summary, percentiles
from scheduler.simulate.run import Scenario, simulate
from scheduler.simulate.search import Slo, largest_rate
from scheduler.simulate.workload import FRAME_SECONDS, Workload, WorkloadError, mixed, read_trace

COST = COST_MODELS["h200-bf16"]
SIZES = Sizes(slots=64, pages=8192, page_size=16)


def jobs(*frames: int) -> Workload:
    """Requests that arrive together, with caps equal to their lengths."""
    n = len(frames)
    lengths = np.array(frames)
    none = np.full(n, -1)
    return Workload(1.0, np.zeros(n), np.full(n, 4), none, np.zeros(0), lengths, lengths, np.ones(n, bool))


@pytest.mark.parametrize(("policy", "steps"), [("fixed", 8), ("fcfs", 6)])
def test_worked_example_of_two_slots(policy: str, steps: int) -> None:
    """Jobs of 2, 6 and 2 steps: a fixed batch waits for its longest job, a continuous one reuses the slot."""
    cost = CostModel(10.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0)
    chosen = options.settings(["look_ahead=false"], policy, [policy])
    cluster = Cluster(chosen, cost, Sizes(2, 64, 16), jobs(2, 6, 2), warm_up=0)
    cluster.run()
    assert cluster.steps == steps


@settings(max_examples=10, deadline=None)
@given(
    rate=st.sampled_from([0.5, 5.0, 50.0]),
    slots=st.integers(1, 16),
    look_ahead=st.booleans(),
    max_batch=st.integers(1, 16),
    clients=st.sampled_from([None, 1, 5]),
    seed=st.integers(0, 1000),
)
def test_every_request_ends_and_every_frame_is_heard_once(
    rate: float, slots: int, look_ahead: bool, max_batch: int, clients: int | None, seed: int
) -> None:
    chosen = Settings(look_ahead=look_ahead, max_batch=max_batch, max_waiting=4)
    workload = mixed(6, "bursty", seed).at_rate(rate)
    cluster = Cluster(chosen, COST, Sizes(slots, 1024, 16), workload, 0, clients)
    cluster.run()
    assert len(cluster.listeners) == 6
    served = [
        (item, frames) for item, frames in zip(cluster.listeners, workload.frames, strict=True) if not item.refused
    ]
    assert served, "somebody is served"
    assert all(item.complete and item.heard == frames and item.reason == "stop" for item, frames in served)
    assert cluster.frames == sum(item.heard for item in cluster.listeners)


def test_a_seed_gives_the_same_run_and_another_seed_another() -> None:
    def run(seed: int) -> Summary:
        return simulate(
            Scenario(COST, SIZES, lambda rate: mixed(15, "poisson", seed).at_rate(5), 0, 0.3), Settings(), None
        )

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_more_load_waits_longer() -> None:
    scenario = Scenario(COST, SIZES, lambda rate: mixed(40, "poisson", 0).at_rate(rate or 1), 0, 0.3)
    assert simulate(scenario, Settings(), 2.0).ttfa.p50 < simulate(scenario, Settings(), 30.0).ttfa.p50


def test_a_lone_request_takes_the_time_of_the_cost_model() -> None:
    """Gateway, prefill with the first frame, the first chunk's frames, its call, gateway; nothing to wait for."""
    cost = CostModel(5.0, 0.0, 0.0, 4.0, 0.0, 1.0, 1.0)
    cluster = Cluster(Settings(max_first_chunk=1), cost, SIZES, jobs(40), warm_up=0)
    cluster.run()
    assert cluster.listeners[0].first_audio == pytest.approx(0.003 + 0.005 + 0.004 + 0.002)


def test_a_vocoder_that_keeps_up_gets_few_large_chunks() -> None:
    """Filled calls would keep it busy all the time, which alone is no reason to fill them."""
    requests = 256
    cost = msgspec.structs.replace(COST_MODELS["h200-s21-fp8"], ar_contention=1.0, vocoder_contention=1.0)
    cluster = Cluster(Settings(), cost, Sizes(128, 16_384, 16), jobs(*[170] * requests), 0, clients=64, spread=1.0)
    cluster.run()
    assert max(cluster.lateness) <= 0, "nobody waits for it"
    assert len(cluster.lateness) / requests < 20, "chunks after the first of each"


def test_devices_slow_each_other_only_while_both_run() -> None:
    gpu = Gpu(ar_contention=2.0, vocoder_contention=4.0)
    gpu.start(gpu.ar, Job(1.0, "step"), 0.0)
    gpu.start(gpu.vocoder, Job(1.0, "call"), 0.5)  # half of the step is left, at half the speed
    assert gpu.next_end == pytest.approx(1.5)
    assert [(end.payload, end.duration) for end in gpu.finish(gpu.next_end)] == [("step", pytest.approx(1.5))]
    assert gpu.next_end == pytest.approx(1.5 + 0.75)  # a quarter of the call was done in the second beside the step
    assert [(end.payload, end.duration) for end in gpu.finish(gpu.next_end)] == [("call", pytest.approx(1.75))]
    assert not gpu.busy


def test_jobs_of_one_device_run_one_after_another() -> None:
    gpu = Gpu(1.3, 1.7)
    gpu.start(gpu.ar, Job(1.0, 1), 0.0)
    gpu.start(gpu.ar, Job(2.0, 2), 0.25)
    assert [gpu.finish(gpu.next_end)[0].duration for _ in range(2)] == pytest.approx([1.0, 2.0])
    assert gpu.ar.busy_seconds == pytest.approx(3.0)


def test_after_an_underrun_the_listener_goes_on_later() -> None:
    listener = Listener(arrived=0.0, streaming=True)
    listener.hear(10, 1.0)
    assert listener.hear(10, 1.0 + 10 * FRAME_SECONDS + 0.5) == pytest.approx(0.5)
    assert listener.hear(10, 1.0 + 20 * FRAME_SECONDS + 0.4) == 0.0  # in time for the shifted clock
    assert listener.underrun == pytest.approx(0.5)
    assert listener.play_end == pytest.approx(1.5 + 30 * FRAME_SECONDS)


def test_mixed_is_as_described() -> None:
    workload = mixed(20_000, "bursty", 3)
    seconds = workload.frames * FRAME_SECONDS
    assert [np.mean((seconds > low - 0.03) & (seconds < high + 0.03)) for low, high in ((1, 4), (5, 12), (20, 60))] == (
        pytest.approx([0.6, 0.3, 0.1], abs=0.02)
    )
    assert seconds.mean() == pytest.approx(8.05, rel=0.03)
    assert np.mean(workload.voices >= 0) == pytest.approx(0.5, abs=0.02)
    assert workload.arrivals[-1] == pytest.approx(20_000, rel=0.05)
    assert (workload.max_frames >= workload.frames).all()
    assert workload.max_frames.min() == 646  # 30 s
    fewer = mixed(100, "bursty", 3)
    assert np.array_equal(fewer.frames, workload.frames[:100])


def test_prompts_of_a_voice_begin_alike_and_all_others_differ() -> None:
    workload = mixed(50, "poisson", 0)
    for first in range(50):
        for second in range(first):
            a, b = workload.prompt(first), workload.prompt(second)
            columns = min(a.shape[1], b.shape[1])
            differing = np.flatnonzero((a[:, :columns] != b[:, :columns]).any(axis=0))
            voice = workload.voices[first]
            same = voice >= 0 and voice == workload.voices[second]
            assert differing[0] == (workload.voice_tokens[voice] if same else 0)


def test_a_trace_is_sorted_by_arrival_and_can_be_compressed(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("14, 100, 50, anna, 1\n10, 200, 60, , 0\n12, 5, 7, anna, 1\n")
    workload = read_trace(file)
    assert workload.arrivals.tolist() == [0, 2, 4]
    assert workload.frames.tolist() == [60, 7, 50]
    assert workload.voices.tolist() == [-1, 0, 0]
    assert workload.streaming.tolist() == [False, True, True]
    assert workload.at_rate(2 * workload.rate).arrivals.tolist() == [0, 1, 2]


@pytest.mark.parametrize("row", ["1,2,3,4", "x,1,1,,1", "0,1,0,,1", "0,1,1,,2", "nan,1,1,,1"])
def test_a_broken_trace_is_refused_with_its_line(tmp_path: Path, row: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(f"0,1,1,,1\n{row}\n")
    with pytest.raises(WorkloadError, match=r"trace\.csv:2"):
        read_trace(file)


@given(limit=st.floats(0.02, 5000), start=st.floats(0.1, 100))
def test_search_ends_just_below_the_limit(limit: float, start: float) -> None:
    def run(rate: float) -> Summary:
        ttfa = percentiles([0.1 if rate <= limit else 0.5])
        none = Percentiles(0.0, 0.0, 0.0)
        return Summary(1, 0.0, ttfa, none, 0.0, 0.0, none, rate, rate, rate, 0.0, 0.5, 0.5, 1.0, 1.0)

    found = largest_rate(run, Slo(0.3, 0.01), start)
    assert found.rate is not None
    assert limit / 1.026 <= found.rate <= limit
    assert found.missed == ["ttfa"]


def test_command_line_writes_the_figures_of_each_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(f"--rate 5 20 --requests 20 --set max_batch=8 --json {file}".split()) == 0
    results = json.loads(file.read_text())
    assert [result["load"] for result in results] == [5, 20]
    assert all(result["summary"]["requests"] == 18 for result in results)
    assert all(0 < result["summary"]["ttfa"]["p50"] <= result["summary"]["ttfa"]["p99"] for result in results)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_command_line_sweeps_clients_of_a_closed_loop(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert main(f"--concurrency 1 4 --requests 20 --json {file}".split()) == 0
    one, four = (result["summary"] for result in json.loads(file.read_text()))
    assert one["mean_batch"] <= 1 < four["mean_batch"] <= 4
    assert one["throughput"] < four["throughput"]


@pytest.mark.parametrize("override", ["no_such_key=1", "max_batch=0", "fcfs.max_batch=8"])
def test_command_line_names_a_wrong_setting(override: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rate", "1", "--requests", "20", "--set", override]) == 1
    assert override.partition("=")[0].rpartition(".")[2] in capsys.readouterr().err
