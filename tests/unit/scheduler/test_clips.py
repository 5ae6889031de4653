"""Reference clips: each is answered once and in time, and those that wait are bounded in number and bytes."""

from __future__ import annotations

import pytest

from common.config import Scheduler as Settings
from tests.unit.scheduler.world import World


def make_world(**settings: float) -> World:
    world = World(Settings(**settings))  # type: ignore[arg-type]
    world.join_ar()
    world.join_vocoder()
    return world


def failure_of(world: World, clip: str) -> str | None:
    failure = world.encoded[clip].failure
    return None if failure is None else failure.code


def test_a_clip_that_is_not_encoded_in_time_is_answered_and_its_late_codes_are_dropped() -> None:
    world = make_world(encode_seconds=10.0)
    at_work, waits = world.submit_clip(), world.submit_clip()
    world.now = 9.9
    world.carry_out()
    assert not world.encoded
    assert world.core.wake_at() == 10.0
    world.now = 10.0
    world.carry_out()
    assert (failure_of(world, at_work), failure_of(world, waits)) == ("overloaded", "overloaded")
    late = world.submit_clip()
    assert world.encode()
    assert world.encode()
    assert failure_of(world, late) is None
    world.check_idle()


@pytest.mark.parametrize(("samples", "fit"), [(1000, 3), (2000, 1), (4000, 1)])
def test_waiting_clips_are_bounded_in_bytes_but_one_always_may_wait(samples: int, fit: int) -> None:
    world = make_world(max_encode_bytes=12_000)
    clips = [world.submit_clip(samples) for _ in range(6)]
    assert [failure_of(world, clip) for clip in clips[1 + fit :]] == ["queue_full"] * (5 - fit)
    while world.encode():
        pass
    assert all(failure_of(world, clip) is None for clip in clips[: 1 + fit])
    world.check_idle()


def test_the_clips_of_a_lost_gateway_are_forgotten() -> None:
    world = make_world()
    world.submit_clip()
    world.submit_clip()
    world.core.peer_lost(world.gateways[0], world.now)
    while world.encode():
        pass
    assert not world.encoded
    assert world.core.idle()
