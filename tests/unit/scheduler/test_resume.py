"""A scheduler that dies, or sound that is lost on its way, costs time and nothing else: the gateway has the rest.

The world checks each prompt, repetition window, frame and sample that come after it.
"""

from __future__ import annotations

import random

import pytest

from common.config import Scheduler as Settings
from scheduler.observer import Observer, Stage
from scheduler.requests.request import Request
from tests.unit.scheduler.test_recovery import at_work, ends_well, work
from tests.unit.scheduler.world import World


def take_over(world: World, *requests: str) -> None:
    """Another scheduler takes over all requests that are not over."""
    world.restart()
    for request in requests:
        if not world.over(request):
            world.resume(request, another=True)


@pytest.mark.parametrize("steps", [0, 1, 3, 8, 12, 14, 15, 16, 20, 22, 28, 31, 35])
@pytest.mark.parametrize("output", ["audio", "codes"])
def test_the_next_scheduler_takes_a_request_over(steps: int, output: str) -> None:
    world, request = at_work(output)
    work(world, steps)
    had = world.have(request)
    take_over(world, request)
    ends_well(world, request)
    assert world.have(request) == 30 >= had


@pytest.mark.parametrize("seed", range(12))
def test_schedulers_and_workers_may_die_one_after_another(seed: int) -> None:
    chance = random.Random(seed)
    world, first = at_work(chance.choice(["audio", "codes"]))
    requests = [first, world.submit([4, 3], [9, 17], output=chance.choice(["audio", "codes"])), world.vocode(21)]
    for _ in range(6):
        work(world, chance.randrange(12))
        fault = chance.randrange(3)
        if fault == 0:
            take_over(world, *requests)
        elif fault == 1:
            world.lose(next(iter(world.ar)))
            world.join_ar()
        else:
            world.lose(next(iter(world.vocoders)), delivered=chance.random() < 0.5)
            world.join_vocoder()
    world.settle()
    for request in requests:
        ends_well(world, request)


def test_a_request_that_had_not_begun_waits_again_for_its_turn() -> None:
    world = World(Settings())
    world.join_ar(slots=1)
    world.join_vocoder()
    requests = [world.submit([4], [20]) for _ in range(3)]
    work(world, 6)
    take_over(world, *requests)
    assert [request.id for request in world.core.waiting] == requests[1:]
    for request in requests:
        ends_well(world, request)


def test_the_last_frames_of_a_request_that_was_all_drawn_are_drawn_again() -> None:
    world, request = at_work()
    while request not in world.ended:
        world.step()
    assert world.have(request) < 30
    take_over(world, request)
    ends_well(world, request)


def test_a_request_of_which_only_the_end_is_missing_ends() -> None:
    world = World(Settings())
    world.join_ar()
    world.join_vocoder()
    request = world.submit([5], [100], max_frames=12)
    world.settle()
    assert world.have(request) == 12
    world.restart()
    world.resume(request, another=True)
    assert (world.ended[request].reason, world.ended[request].frames) == ("length", 12)
    ends_well(world, request)


def test_an_open_request_rests_again_and_goes_on_with_what_is_said_later() -> None:
    world = World(Settings(prefill_budget=8))
    world.join_ar()
    world.join_vocoder()
    request = world.submit([5], [6], room=30)
    world.extend(request, [4], [11], last=False)
    world.settle()
    assert world.rested[request].extended == 1
    del world.rested[request]
    world.restart()
    world.resume(request, another=True)
    world.settle()
    assert (world.rested[request].frames, world.rested[request].extended) == (11, 1)
    world.extend(request, [3], [15], last=True)
    ends_well(world, request)


def test_without_an_ar_worker_a_request_that_was_taken_over_waits_for_one() -> None:
    world, request = at_work()
    work(world, 12)
    world.lose(next(iter(world.ar)))
    take_over(world, request)
    assert request in world.core.requests
    world.join_ar()
    ends_well(world, request)


def test_the_client_that_goes_takes_a_request_that_was_taken_over_along() -> None:
    world, request = at_work()
    work(world, 12)
    take_over(world, request)
    world.core.cancel(request, "cancelled")
    world.settle()
    world.check_idle()


# Sound that is lost between living processes --------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [2, 5, 12, 20, 33])
def test_sound_that_is_lost_on_its_way_is_made_again(steps: int) -> None:
    world, request = at_work()
    work(world, steps)
    while not world.call(lost=True):
        world.step()
    had = world.have(request)
    work(world, 3)
    if request in world.core.requests:
        world.resume(request)
    else:
        world.resume(request, another=True)  # it was over, as far as the scheduler knew
    world.settle()
    assert world.have(request) == 30 > had
    ends_well(world, request)


def test_the_last_sound_may_be_lost_when_the_request_is_forgotten_already() -> None:
    world, request = at_work()
    work(world, 20)
    while world.step():
        pass
    while world.call(lost=True):
        world.read_all()
    assert request not in world.core.requests
    assert not world.over(request)
    world.resume(request, another=True)  # which is news to this one as well
    ends_well(world, request)
    assert world.over(request)


def test_a_question_about_sound_that_is_only_late_changes_nothing() -> None:
    world, request = at_work()
    work(world, 12)
    stream = next(iter(world.core.vocoders.values())).streams[request]
    world.resume(request)
    assert next(iter(world.core.vocoders.values())).streams[request] is stream
    ends_well(world, request)


@pytest.mark.parametrize("steps", [2, 5, 12, 20])
def test_streams_wait_for_a_connection_that_was_cut_and_go_on_when_it_is_there_again(steps: int) -> None:
    world, request = at_work()
    work(world, steps)
    while not world.call(unreachable=True):
        world.step()
    (vocoder,) = world.detached
    had = world.have(request)
    for _ in range(4):
        world.step()  # frames are drawn all the same
        assert not world.call()
    assert request in world.core.requests
    world.core.attached(world.gateways[0], vocoder)
    world.carry_out()
    world.settle()
    assert world.have(request) == 30 >= had
    assert not world.holes
    ends_well(world, request)


def test_a_gateway_that_is_never_reached_again_gets_an_error_and_keeps_nothing() -> None:
    world, request = at_work()
    work(world, 8)
    while not world.call(unreachable=True):
        world.step()
    world.now += world.core.settings.recovery_seconds
    world.carry_out()
    failure = world.ended[request].failure
    assert failure is not None
    assert failure.code == "worker_lost"
    world.settle()
    world.check_idle()


def test_an_answer_to_a_call_before_a_rewind_does_not_count_as_delivered() -> None:
    world, request = at_work()
    work(world, 10)
    while not world.call(lost=True):
        world.step()
    while not next(iter(world.vocoders.values())).plans:
        world.step()
    world.resume(request)  # while a call of the former place is in flight
    delivered = world.core.requests[request].playback.delivered
    assert delivered == world.have(request)
    world.call()
    assert world.core.requests[request].playback.delivered == delivered
    assert request in world.holes
    ends_well(world, request)


# What it costs --------------------------------------------------------------------------------------------------------


class Costs(Observer):
    def __init__(self) -> None:
        self.frames = {"ar": 0, "vocoder": 0}
        self.underruns: list[float] = []

    def remade(self, request: Request, stage: Stage, frames: int) -> None:
        self.frames[stage] += frames

    def stood_still(self, request: Request, seconds: float) -> None:
        self.underruns.append(seconds)


@pytest.mark.parametrize("lost", ["ar", "vocoder", "scheduler"])
def test_what_a_fault_costs_is_told(lost: str) -> None:
    costs = Costs()
    world = World(Settings(), costs)
    world.join_ar()
    world.join_vocoder()
    request = world.submit([4], [40])
    work(world, 15)
    record = world.core.requests[request]
    drawn, delivered, play_end = record.frames, record.playback.delivered, record.playback.play_end
    assert play_end is not None
    if lost == "scheduler":
        take_over(world, request)
        drawn, play_end = delivered, world.now  # it knows no better
    else:
        world.lose(next(iter(world.ar if lost == "ar" else world.vocoders)))
    world.now = play_end + 2.0
    (world.join_ar if lost == "ar" else world.join_vocoder)()
    ends_well(world, request)
    assert costs.frames == {"ar": 0 if lost == "vocoder" else drawn, "vocoder": 0 if lost == "ar" else delivered}
    (underrun,) = costs.underruns
    assert 2.0 <= underrun < 3.0


def test_a_fault_that_nobody_hears_is_no_underrun() -> None:
    costs = Costs()
    world = World(Settings(), costs)
    world.join_ar()
    world.join_vocoder()
    request = world.submit([4], [40])
    work(world, 20)
    world.lose(next(iter(world.ar)))
    world.join_ar()
    ends_well(world, request)
    assert costs.underruns == []
