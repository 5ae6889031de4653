"""A lost worker costs its requests time, and nothing else. The world checks each prompt, window, frame and sample."""

from __future__ import annotations

import pytest

from common.config import Scheduler as Settings
from tests.unit.scheduler.world import World

LOSSES = 3  # without progress: after the second a request is suspected, after the third it was alone


def at_work(output: str = "audio") -> tuple[World, str]:
    """A world in the middle of a request of three turns, 30 frames in all."""
    world = World(Settings(prefill_budget=8))
    world.join_ar()
    world.join_vocoder()
    request = world.submit([7, 5, 6], [10, 18, 30], output=output)
    return world, request


def work(world: World, steps: int) -> None:
    for _ in range(steps):
        world.step()
        world.call()
        world.read_all()


def ends_well(world: World, request: str) -> None:
    world.settle()
    assert world.ended[request].failure is None
    world.check_ended(request)
    world.check_idle()


@pytest.mark.parametrize("steps", [0, 1, 3, 8, 14, 15, 16, 20, 28, 31])
@pytest.mark.parametrize("output", ["audio", "codes"])
def test_a_request_continues_on_another_ar_worker(steps: int, output: str) -> None:
    world, request = at_work(output)
    work(world, steps)
    world.lose(next(iter(world.ar)))
    world.join_ar()
    ends_well(world, request)


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize("steps", [0, 2, 5, 12, 20, 33, 40])
def test_a_stream_continues_on_another_vocoder_worker(steps: int, delivered: bool) -> None:
    world, request = at_work()
    work(world, steps)
    world.lose(next(iter(world.vocoders)), delivered)
    work(world, 4)  # frames are drawn all the same
    world.join_vocoder()
    ends_well(world, request)


@pytest.mark.parametrize("steps", [6, 9, 17, 25])
def test_a_request_outlives_workers_again_and_again(steps: int) -> None:
    world, request = at_work()
    for _ in range(4):
        work(world, steps)
        if request in world.core.requests:
            world.lose(next(iter(world.ar)))
            world.lose(next(iter(world.vocoders)), delivered=True)
            world.join_vocoder()
            world.join_ar()
    ends_well(world, request)


def test_a_live_worker_takes_over_at_once() -> None:
    world, request = at_work()
    world.join_ar()
    work(world, 10)
    busy = next(name for name, worker in world.core.ar_workers.items() if worker.sequences)
    world.lose(busy)
    (other,) = world.core.ar_workers.values()
    assert request in other.sequences
    ends_well(world, request)


def test_a_request_that_waits_for_a_worker_in_vain_ends_with_an_error() -> None:
    world, request = at_work()
    work(world, 10)
    world.lose(next(iter(world.ar)))
    wake_at = world.core.wake_at()
    assert wake_at == pytest.approx(world.now + world.core.settings.recovery_seconds)
    world.now = wake_at
    world.carry_out()
    failure = world.ended[request].failure
    assert failure is not None
    assert (failure.status, failure.code) == (503, "worker_lost")
    assert not world.core.requests


@pytest.mark.parametrize("kind", ["ar", "vocoder"])
def test_a_request_that_kills_three_workers_in_a_row_ends(kind: str) -> None:
    world, request = at_work()
    work(world, 12)
    while not next(iter(world.vocoders.values())).plans:
        world.step()  # it is at work on the request when it dies
    for _ in range(LOSSES):
        assert request not in world.ended
        if kind == "ar":
            world.lose(next(iter(world.ar)))
            world.join_ar()
        else:
            world.lose(next(iter(world.vocoders)))
            world.join_vocoder()
    failure = world.ended[request].failure
    assert failure is not None
    assert failure.code == "worker_lost"
    world.settle()
    world.check_idle()


def test_a_request_that_lost_its_worker_takes_precedence_over_waiting_ones() -> None:
    world = World(Settings())
    world.join_ar(slots=1)
    world.join_vocoder()
    first = world.submit([4], [20])
    work(world, 8)
    second = world.submit([4], [20])
    world.join_ar(slots=1)
    work(world, 2)
    third = world.submit([4], [20])
    world.lose(next(name for name, worker in world.core.ar_workers.items() if first in worker.sequences))
    assert third in [request.id for request in world.core.waiting]
    world.settle()
    assert list(world.ended) == [second, first, third]
    for request in (first, second, third):
        world.check_ended(request)
    world.check_idle()


@pytest.mark.parametrize("kind", ["ar", "vocoder"])
@pytest.mark.parametrize("output", ["audio", "codes"])
@pytest.mark.parametrize("steps", [0, 1, 5, 16])
def test_late_answers_of_a_worker_that_registers_again_are_dropped_and_no_loss(
    kind: str, output: str, steps: int
) -> None:
    world, request = at_work(output)
    work(world, steps)
    workers = world.ar if kind == "ar" else world.vocoders
    for _ in range(2 * LOSSES):
        world.stall(next(iter(workers)))
        world.late_answer()
        world.step()
        world.call()
        world.late_answer()
        assert request not in world.core.requests or not world.core.requests[request].kills_ar
        work(world, 8)
    ends_well(world, request)


def test_a_late_answer_is_not_taken_for_the_frame_of_another_request() -> None:
    world = World(Settings(look_ahead=False))
    worker = world.join_ar()
    world.join_vocoder()
    first = world.submit([7], [20], output="codes")
    world.core.cancel(first, "cancelled")
    world.stall(worker.incarnation)
    second = world.submit([7], [20], output="codes")
    world.late_answer()
    ends_well(world, second)


@pytest.mark.parametrize("kind", ["ar", "vocoder"])
def test_a_worker_that_is_at_one_step_or_call_for_long_hangs_and_others_do_not(kind: str) -> None:
    world, request = at_work()
    world.join_ar()
    world.join_vocoder()
    while not any(worker.plans for worker in (world.ar if kind == "ar" else world.vocoders).values()):
        world.step()
    busy = {name for name, worker in [*world.ar.items(), *world.vocoders.items()] if worker.plans}
    timeout = world.core.settings.hang_timeout
    assert world.core.hanging(world.now + timeout) == []
    assert set(world.core.hanging(world.now + timeout + 1)) == busy
    ends_well(world, request)
    assert world.core.hanging(world.now + 1e6) == [], "a worker without work never hangs"


def test_what_takes_long_may_take_longer() -> None:
    world = World(Settings(hang_timeout=1.0))
    world.join_ar().seconds = 3.0
    world.join_vocoder()
    request = world.submit([7], [30])
    for _ in range(12):
        world.step()
        while world.call():
            pass
    assert world.core.hanging(world.now + 20) == []
    assert world.core.hanging(world.now + 100) == list(world.ar)
    ends_well(world, request)


@pytest.mark.parametrize("kind", ["ar", "vocoder"])
@pytest.mark.parametrize("steps", [0, 4, 12])
@pytest.mark.parametrize("budget", [8, 64])
def test_a_request_that_kills_its_workers_ends_alone(kind: str, steps: int, budget: int) -> None:
    """All requests served together with it survive, and three losses are enough."""
    world = World(Settings(prefill_budget=budget))
    world.join_ar(slots=8, pages=256)
    world.join_vocoder(slots=8)
    innocent = [world.submit([7], [20 + n]) for n in range(3)]
    work(world, steps)
    poison = world.submit([9], [30])
    innocent += [world.submit([7], [25 + n]) for n in range(2)]
    losses = 0
    workers = world.ar if kind == "ar" else world.vocoders
    while poison not in world.ended or world.ended[poison].failure is None:
        (name,) = workers
        if world.kills(name, poison):
            world.lose(name)
            losses += 1
            assert losses <= LOSSES
            world.join_ar(slots=8, pages=256) if kind == "ar" else world.join_vocoder(slots=8)
        else:
            assert world.call() or world.step()
            world.read_all()
    assert losses == LOSSES
    failure = world.ended[poison].failure
    assert failure is not None
    assert (failure.status, failure.code, failure.retry_after) == (500, "worker_lost", None), "no second attempt"
    world.settle()
    for request in innocent:
        assert world.ended[request].failure is None
        world.check_ended(request)
    world.check_idle()


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_an_open_request_at_rest_outlives_its_worker(extended: bool, last: bool) -> None:
    """``extended``: its text goes on while there is no worker."""
    world = World(Settings(prefill_budget=8))
    world.join_ar()
    world.join_vocoder()
    request = world.submit([5, 3], [6, 11], room=30)
    world.settle()
    assert world.rested[request].frames == 11
    world.lose(next(iter(world.ar)))
    assert request not in world.ended
    if extended:
        world.extend(request, [4], [15], last=last)
    world.join_ar()
    world.settle()
    if not extended:
        world.extend(request, [4], [15], last=last)
        world.settle()
    if not last:
        assert world.rested[request].frames == 15
        world.extend(request, [], [], last=True)
    ends_well(world, request)
    assert world.ended[request].frames == 15


def test_a_stream_whose_client_does_not_read_is_not_blamed_for_losses_of_its_vocoder() -> None:
    world = World(Settings(unread_seconds=0.5))
    world.join_ar()
    world.join_vocoder()
    request = world.submit([5], [35])
    while world.step() or world.call():
        pass
    assert 0 < world.sound[request] < 35
    for _ in range(2 * LOSSES):
        world.lose(next(iter(world.vocoders)))
        world.join_vocoder()
        while world.call():  # the state is made anew; the client leaves no room for more
            pass
    ends_well(world, request)
