"""An exception in a decision about one request ends that request and is logged; all others continue."""

from __future__ import annotations

import pytest

from common.config import Scheduler as Settings
from scheduler.planning.calls import CallPlanner
from scheduler.planning.placement import Placement
from scheduler.planning.policy import Playback
from scheduler.planning.steps import StepPlanner
from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker
from scheduler.workers.vocoder_worker import VocoderWorker
from tests.unit.scheduler.poison import PLACES, PoisonError, poison
from tests.unit.scheduler.world import World


def make_world() -> World:
    world = World(Settings(prefill_budget=8))
    world.join_ar(slots=4, pages=256, page_size=4, context=512)
    world.join_vocoder()
    return world


def check_ended_alone(world: World, poisoned: str, code: str, others: list[str]) -> None:
    failure = world.ended[poisoned].failure
    assert failure is not None
    assert failure.code == code
    for other in others:
        assert world.ended[other].failure is None
        world.check_ended(other)
    world.check_idle()


def check(world: World, poisoned: str, others: list[str], caplog: pytest.LogCaptureFixture) -> None:
    world.settle()
    check_ended_alone(world, poisoned, "internal_error", others)
    assert any(record.exc_info and isinstance(record.exc_info[1], PoisonError) for record in caplog.records)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("steps", [0, 2, 9])
def test_a_request_that_fails_ends_alone(where: str, steps: int, caplog: pytest.LogCaptureFixture) -> None:
    world = make_world()
    others = [world.submit([9], [30]) for _ in range(2)]
    poisoned = world.submit([9, 6], [14, 39])
    for _ in range(steps):
        world.step()
        world.call()
        world.read_all()
    poison(world.core.requests[poisoned], where)
    check(world, poisoned, [*others, world.submit([9], [30])], caplog)


@pytest.mark.parametrize("waits", [False, True])
def test_a_request_that_cannot_be_placed_ends_alone(
    waits: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Placement._keys

    def fail(self: Placement, request: Request, worker: object) -> list[bytes]:
        if request.client == "poison":
            raise PoisonError
        return keys(self, request, worker)  # type: ignore[arg-type]

    monkeypatch.setattr(Placement, "_keys", fail)
    world = make_world()
    others = [world.submit([9], [20]) for _ in range(4 if waits else 1)]
    poisoned = world.submit([9], [20], client="poison")
    others.append(world.submit([9], [20]))
    check(world, poisoned, others, caplog)


def test_an_exception_that_no_request_explains_has_the_worker_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    requests = [world.submit([9], [30]) for _ in range(3)]
    for _ in range(10):
        world.step()
        world.call()
    fill_target = Playback.fill_target
    failures = [1]

    def fail(self: Playback, vocoder: object) -> int:
        if failures:
            failures.pop()
            raise PoisonError
        return fill_target(self, vocoder)  # type: ignore[arg-type]

    monkeypatch.setattr(Playback, "fill_target", fail)
    world.settle()
    assert not failures
    for request in requests:
        assert world.ended[request].failure is None
        world.check_ended(request)
    world.check_idle()


@pytest.mark.parametrize("planner", [StepPlanner, CallPlanner])
def test_a_request_with_which_planning_always_fails_is_found_and_ends_alone(
    planner: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No single decision names it: the planner fails while the worker has it, whatever else it has."""
    world = make_world()
    requests = [world.submit([9], [30 + n]) for n in range(3)]
    for _ in range(8):
        world.step()
        world.call()
    poisoned, plan = world.submit([9], [30]), planner.plan  # type: ignore[attr-defined]

    def fail(self: object, worker: ArWorker | VocoderWorker, now: float) -> object:
        places = worker.sequences if isinstance(worker, ArWorker) else worker.streams
        if poisoned in places:
            raise PoisonError
        return plan(self, worker, now)

    monkeypatch.setattr(planner, "plan", fail)
    for _ in range(20):
        world.settle()
        world.carry_out()
    check_ended_alone(world, poisoned, "worker_lost", requests)
