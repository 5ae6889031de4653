"""The journal: stages of each request, steps and calls, within bounds."""

from __future__ import annotations

import itertools
import math

import pytest

from common import timeline
from common.config import Scheduler as Settings
from common.timeline import RequestRecord
from tests.unit.scheduler.world import World


def make_world(**bounds: int) -> World:
    world = World(Settings(), **bounds)
    world.join_ar()
    world.join_vocoder()
    return world


def records(world: World) -> dict[str, RequestRecord]:
    recent = world.journal.recent(-math.inf, math.inf, work=False)
    return {record.request: record for record in recent.requests}


def test_stages_come_in_order_and_the_items_of_the_calls_are_the_frames() -> None:
    world = make_world()
    requests = [world.submit([6, 3], [12, 20]) for _ in range(3)]
    world.settle()
    recent = world.journal.recent(-math.inf, math.inf, work=True)
    for request in requests:
        record = records(world)[request]
        times = [record.queued, record.admitted, record.prefill, record.first_codes, record.generated, record.ended]
        assert times == sorted(times)  # type: ignore[type-var]
        assert record.first_codes <= record.first_call < record.sounded <= record.ended  # type: ignore[operator]
        assert (record.frames, record.reason, record.prompt_tokens) == (20, "stop", 9)
        mine = [item for call in recent.calls for item in call.items if item.request == record.number]
        assert record.calls == len(mine)
        assert [item.first for item in mine] == [0, *itertools.accumulate(item.frames for item in mine)][:-1]
        assert sum(item.frames for item in mine) == 20
        # A frame each, the ends of its two turns, and perhaps a frame asked for too much.
        assert sum(record.number in step.requests for step in recent.steps) in (22, 23, 24)
        assert sum(record.number in step.prompts for step in recent.steps) >= 2
    for steps in (recent.steps, recent.calls):
        assert all(one.answered <= other.began for one, other in itertools.pairwise(steps))
        assert all(step.began <= step.answered for step in steps)
    assert sum(step.prompt_tokens for step in recent.steps) + sum(r.cached_tokens for r in recent.requests) == 27


def test_the_record_of_a_cancelled_request_ends_at_the_stage_it_had_reached() -> None:
    world = make_world()
    waits = [world.submit([4], [30]) for _ in range(5)][-1]  # four slots
    world.core.cancel(waits, "cancelled")
    record = records(world)[waits]
    assert (record.reason, record.admitted, record.generated) == ("cancelled", None, None)
    assert record.ended == world.now


def test_a_window_has_what_was_under_way_in_it_and_nothing_else() -> None:
    world = make_world()
    early = world.submit([4], [10])
    world.settle()
    middle = world.now
    world.now += 1
    late = world.submit([4], [10])
    world.step()
    journal = world.journal
    assert [record.request for record in journal.recent(0, middle, work=True).requests] == [early]
    recent = journal.recent(middle + 0.5, math.inf, work=True)
    assert [record.request for record in recent.requests] == [late]
    assert recent.requests[0].ended is None
    assert len(recent.steps) == 1


def test_the_journal_is_bounded() -> None:
    world = make_world(requests=3, events=5)
    requests = []
    for _ in range(6):
        requests.append(world.submit([4], [10]))
        world.settle()
    recent = world.journal.recent(-math.inf, math.inf, work=True)
    assert [record.request for record in recent.requests] == requests[-3:]
    assert (len(recent.steps), len(recent.calls)) == (5, 5)


def test_the_page_has_the_window_that_was_requested() -> None:
    world = make_world()
    world.submit([4], [10])
    world.settle()
    journal = world.journal
    whole = {"since": "0", "until": str(world.now), timeline.WORK: ""}
    assert timeline.decode(journal.page(whole)) == journal.recent(0, world.now, work=True)
    assert timeline.decode(journal.page(whole | {"since": str(world.now + 1)})) == timeline.NOTHING
    for wrong in ({}, {"since": "0", "until": "never"}):
        with pytest.raises((ValueError, KeyError)):
            journal.page(wrong)
