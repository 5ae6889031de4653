"""Single decisions: waiting, refusals, parking, and the size of the first chunk."""

from __future__ import annotations

import numpy as np
import pytest

from common.config import Scheduler as Settings
from common.messages import Rested, StepPlan
from scheduler.planning.policy import first_chunk
from scheduler.resources.costs import LinearCost
from tests.unit.scheduler.world import World


def make_world(settings: Settings, slots: int = 4, pages: int = 256, vocoder_slots: int = 16) -> World:
    world = World(settings)
    world.join_ar(slots=slots, pages=pages, page_size=4, context=512)
    world.join_vocoder(vocoder_slots)
    return world


@pytest.mark.parametrize(
    ("step", "call", "frames"),
    [
        (0.004, 0.003, 1),  # far quicker than the listener: one frame lasts
        (0.02, 0.03, 3),
        (0.031, 0.03, 8),  # hardly quicker: as many as allowed
        (0.1, 0.01, 8),  # slower than the listener
    ],
)
def test_the_first_chunk_lasts_until_the_second(step: float, call: float, frames: int) -> None:
    assert first_chunk(step, call, frame_seconds=0.05, least=2, most=8) == frames


def test_requests_beyond_the_queue_bound_are_refused_at_once_with_retry_after() -> None:
    world = make_world(Settings(max_waiting=3), slots=2)
    requests = [world.submit([4], [30]) for _ in range(8)]
    refused = [world.ended[request] for request in requests if request in world.ended]
    assert len(refused) == 3
    for ended in refused:
        assert (ended.reason, ended.failure and ended.failure.status) == ("rejected", 429)
        assert ended.failure is not None
        assert ended.failure.retry_after is not None


def queue_full(world: World, request: str) -> bool:
    ended = world.ended.get(request)
    return ended is not None and ended.failure is not None and ended.failure.code == "queue_full"


def test_places_of_a_full_queue_are_shared_between_clients() -> None:
    world = make_world(Settings(max_waiting=4), slots=1)
    greedy = [world.submit([4], [30], client="greedy") for _ in range(6)]  # one is served, four wait
    assert [queue_full(world, request) for request in greedy] == [False] * 5 + [True]
    modest = [world.submit([4], [30], client="modest") for _ in range(3)]
    assert [queue_full(world, request) for request in modest] == [False, False, True]
    assert [queue_full(world, request) for request in greedy] == [False] * 3 + [True] * 3, "the latest gave way"
    third = world.submit([4], [30], client="third")
    assert not queue_full(world, third)
    assert len(world.core.waiting) == 4
    world.settle()
    assert all(world.ended[request].reason in ("stop", "length") for request in (*greedy[:2], *modest[:1]))


def test_files_that_hold_every_place_give_way_to_a_listener() -> None:
    world = make_world(Settings(max_waiting=2), slots=1)
    files = [world.submit([4], [30], streaming=False) for _ in range(3)]
    listeners = [world.submit([4], [30]) for _ in range(2)]
    assert [queue_full(world, request) for request in files] == [False, False, True]
    assert [queue_full(world, request) for request in listeners] == [False, True]


def test_a_request_that_waits_beyond_its_deadline_times_out() -> None:
    world = make_world(Settings(refuse_late=False), slots=1)
    world.submit([4], [100])
    late = world.submit([4], [5], deadline=2.0)
    world.now = 1.9
    world.carry_out()
    assert late not in world.ended
    assert world.core.wake_at() == 2.0
    world.now = 2.0
    world.carry_out()
    assert world.ended[late].reason == "timeout"


def test_a_request_that_would_be_late_is_refused_at_once_and_one_without_deadline_waits() -> None:
    world = make_world(Settings(), slots=1)
    world.submit([4], [400], max_frames=500)
    for _ in range(30):
        world.step()
        world.call()
    waiting = world.submit([4], [5], deadline=1.0)
    world.now += 0.7
    hasty = world.submit([4], [5], deadline=1.0)
    assert waiting not in world.ended
    assert world.ended[hasty].failure is not None
    assert world.ended[hasty].failure.code == "overloaded"
    patient = world.submit([4], [5], deadline=None)
    assert patient not in world.ended


def test_clients_share_under_contention_and_a_lone_one_gets_everything() -> None:
    world = make_world(Settings(), slots=4)
    greedy = [world.submit([4], [20], client="greedy") for _ in range(12)]
    assert len(world.core.requests) == 4, "no cap on an idle machine"
    modest = [world.submit([4], [20], client="modest") for _ in range(2)]
    while not all(request in world.ended for request in modest):
        assert world.step() or world.call()
        world.read_all()
    assert sum(request in world.ended for request in greedy) <= 6, "the modest did not wait for the greedy's queue"


def test_batch_requests_wait_for_interactive_ones_but_not_for_ever() -> None:
    world = make_world(Settings(), slots=1)
    world.submit([4], [3])
    batch = world.submit([4], [3], priority="batch")
    late = world.submit([4], [3])
    order: list[str] = []
    while len(order) < 2:
        assert world.step() or world.call()
        world.read_all()
        order += [request for request in (batch, late) if request in world.ended and request not in order]
    assert order == [late, batch]
    world.submit([4], [3])
    patient = world.submit([4], [3], priority="batch")
    world.now += 60.0
    rival = world.submit([4], [3])
    while patient not in world.ended:
        assert rival not in world.ended, "by now its turn has come"
        assert world.step() or world.call()
        world.read_all()


def test_a_lone_stream_far_ahead_is_not_parked() -> None:
    world = make_world(Settings(park_seconds=0.2))
    request = world.submit([4], [100], max_frames=120)
    steps = 0
    while request not in world.ended:
        assert world.step(), "the worker always has a step"
        steps += 1
        world.call()
        world.read_all()
    assert steps <= 103


@pytest.mark.parametrize("per_row", [0.0, 0.005])
def test_streams_far_ahead_are_not_parked_for_a_request_that_waits_for_a_slot(per_row: float) -> None:
    """Each step draws a frame for every stream, so the slot is free as soon as the first reply ends."""
    world = make_world(Settings(park_seconds=0.2))
    (worker,) = world.ar.values()
    worker.per_row = per_row
    house = [world.submit([4], [100], max_frames=120) for _ in range(4)]
    steps = 0
    waiter = world.submit([4], [5])
    while waiter not in world.core.requests:
        assert world.step()
        steps += 1
        world.call()
        world.read_all()
    assert steps <= 110
    assert any(request in world.ended for request in house)


@pytest.mark.parametrize(("per_row", "sits_out"), [(0.01, True), (0.0, False)])
def test_a_stream_far_ahead_sits_out_only_if_another_gains(per_row: float, sits_out: bool) -> None:
    world = make_world(Settings(park_seconds=0.5, look_ahead=False))
    (worker,) = world.ar.values()
    worker.per_row = per_row
    ahead = world.submit([4], [200], max_frames=200)
    for _ in range(40):
        world.step()
        world.call()
        world.read_all()
    other = world.submit([4], [200], max_frames=200)
    for _ in range(3):
        world.step()
        world.call()
    before = world.core.requests[ahead].frames, world.core.requests[other].frames
    for _ in range(10):
        world.step()
        world.call()
        world.read_all()
    ahead_drew, other_drew = (
        world.core.requests[ahead].frames - before[0],
        world.core.requests[other].frames - before[1],
    )
    assert other_drew == 10
    assert (ahead_drew < 5) == sits_out, "where a row costs nothing, nobody gains by its absence"


def test_a_file_gets_spare_capacity_and_is_never_starved() -> None:
    world = make_world(Settings(max_batch=2, look_ahead=False), slots=4)
    file = world.submit([4], [30], streaming=False)
    listeners = [world.submit([4], [200], max_frames=200) for _ in range(3)]
    worst, last = 0.0, world.now
    while file not in world.ended:
        frames = world.core.requests[file].frames if file in world.core.requests else 0
        assert world.step() or world.call()
        while world.call():
            pass
        if file in world.core.requests and world.core.requests[file].frames > frames:
            worst, last = max(worst, world.now - last), world.now
    assert worst <= 1.2, "a frame each second at least"
    assert all(world.ended[listener].frames == 200 for listener in listeners), "listeners went first"


@pytest.mark.parametrize(("reserve", "goes_first"), [(2.0, True), (0.2, False)])
def test_the_last_chunk_takes_precedence_over_listeners_with_enough_buffered(reserve: float, goes_first: bool) -> None:
    world = make_world(Settings())
    ending, other = (world.core.requests[world.submit([4], [frames], max_frames=200)] for frames in (30, 150))
    while not ending.generated:
        assert world.step()
    assert ending.unsent > 0
    ending.playback.play_end, other.playback.play_end = world.now + 3.0, world.now + reserve
    ending.playback.delivered, other.playback.delivered = ending.playback.sent, other.playback.sent
    urgency = world.core.policy.urgency
    assert (urgency(ending, world.now) < urgency(other, world.now)) == goes_first


def test_a_client_that_does_not_read_holds_back_its_own_sound_only() -> None:
    world = make_world(Settings(unread_seconds=1.0))
    stuck = world.submit([4], [100], max_frames=120)
    other = world.submit([4], [100], max_frames=120)
    while other not in world.ended or world.sound.get(other, 0) < 100:
        assert world.step() or world.call()
        world.core.credit(other, world.sound.get(other, 0))
        world.carry_out()
    assert world.sound[stuck] == 20, "one second of sound"
    assert stuck in world.ended, "the model's part ran to its end, and its pages are free"
    (worker,) = world.core.ar_workers.values()
    assert worker.pages.active == 0
    world.core.cancel(stuck, "slow_client")
    world.carry_out()
    world.check_idle()


def test_a_cancel_settles_at_the_edge_of_the_steps_in_flight() -> None:
    world = make_world(Settings())
    request = world.submit([4], [100], max_frames=120)
    for _ in range(5):
        world.step()
    world.core.cancel(request, "cancelled")
    world.carry_out()
    (worker,) = world.core.ar_workers.values()
    assert worker.pages.active > 0, "the steps in flight still write to them"
    assert world.step()
    assert world.step()
    assert not world.step(), "free within two steps"
    world.settle()
    world.check_idle()


def test_a_worker_found_lost_while_steps_are_sent_gets_no_more() -> None:
    world = make_world(Settings(look_ahead=True))
    other = world.join_ar()
    requests = [world.submit([4], [20]) for _ in range(2)]
    lost, sent = next(worker for worker in world.ar.values() if worker is not other), []
    for worker in world.ar.values():
        while worker.plans:
            done = worker.answer(world.by_seed)
            world.core.step_done(worker.incarnation, done, worker.codes, worker.ended, world.now)
    for peer, body, _ in world.core.plan(world.now):
        sent.append((peer, type(body)))
        if sent == [(lost.incarnation, StepPlan)]:
            world.core.peer_lost(lost.incarnation, world.now)
    steps = [peer for peer, kind in sent if kind is StepPlan]
    assert steps == [lost.incarnation, other.incarnation, other.incarnation]
    assert sent[: len(steps)] == [(peer, StepPlan) for peer in steps], "steps come before all else"
    assert all(request in world.core.requests for request in requests), "and nobody's request ends"


def test_costs_are_learned() -> None:
    cost = LinearCost([0.01, 0.0, 0.0])
    random = np.random.default_rng(3)
    for _ in range(300):
        rows, tokens = int(random.integers(1, 100)), int(random.integers(0, 500))
        cost.add(0.004 + 0.00005 * rows + 0.0000123 * tokens, rows, tokens)
    assert cost.predict(64, 0) == pytest.approx(0.0072, rel=0.05)
    assert cost.predict(64, 1000) == pytest.approx(0.0195, rel=0.05)


def test_a_gateway_hears_when_all_turns_of_an_open_request_are_spoken() -> None:
    world = make_world(Settings())
    request = world.submit([4, 4], [3, 5], room=10)
    world.settle()
    assert world.rested[request] == Rested(request, 5, extended=0)
    world.extend(request, [2], [9], last=False)
    world.settle()
    assert world.rested[request] == Rested(request, 9, extended=1)
    assert request not in world.ended
    assert world.sound[request] == 9
    world.extend(request, [], [], last=True)
    world.settle()
    assert (world.ended[request].reason, world.ended[request].frames) == ("stop", 9)


@pytest.mark.parametrize(("seconds", "most"), [(0.002, 3), (0.006, 2)])
def test_short_steps_are_sent_two_ahead(seconds: float, most: int) -> None:
    world = make_world(Settings())
    (worker,) = world.ar.values()
    worker.seconds = seconds
    request, sent = world.submit([4], [20]), []
    while world.step():
        sent.append(len(worker.plans))
    assert max(sent) == most
    world.settle()
    assert world.ended[request].frames == 20
    world.check_idle()


@pytest.mark.parametrize("most", [4, 6, 9])
def test_a_step_has_no_more_prompt_than_the_worker_can_take(most: int) -> None:
    """The fake worker refuses larger steps; the scheduler's own budget and the other worker's limit are larger."""
    world = World(Settings(prefill_budget=1024))
    world.join_ar(max_prefill_tokens=most)
    world.join_ar(max_prefill_tokens=64)
    world.join_vocoder()
    requests = [world.submit([30], [12], voice=voice) for voice in range(4)]
    world.settle()
    for request in requests:
        assert world.ended[request].failure is None
        world.check_ended(request)


def test_a_request_whose_gateway_reaches_no_vocoder_does_not_hold_up_others() -> None:
    world = make_world(Settings(), slots=1)
    world.gateways.append("gateway-1")
    (vocoder,) = world.vocoders
    world.core.attached("gateway-1", vocoder)
    first = world.submit([4], [10])
    stuck = world.submit([4], [10], gateway=1)
    others = [world.submit([4], [10]) for _ in range(2)]
    world.core.vocoders[vocoder].attached.discard("gateway-1")
    world.settle()
    assert all(world.ended[request].failure is None for request in (first, *others))
    assert stuck not in world.ended
    world.core.attached("gateway-1", vocoder)
    world.carry_out()
    world.settle()
    world.check_ended(stuck)
    world.check_idle()


def test_a_request_too_long_for_the_workers_that_are_left_does_not_hold_up_others() -> None:
    world = World(Settings())
    large = world.join_ar(slots=1, pages=64, context=256)
    world.join_ar(slots=1, pages=16, context=64)
    world.join_vocoder()
    for _ in range(2):
        world.submit([4], [8])
    long, short = world.submit([100], [5]), world.submit([4], [5])
    assert len(world.core.waiting) == 2
    world.lose(large.incarnation)
    assert world.ended[long].failure is not None
    world.settle()
    world.check_ended(short)
    world.check_idle()
