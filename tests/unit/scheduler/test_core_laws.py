"""State machine: the scheduler's laws hold under any order of requests, answers, cancels, credits and faults."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from common.config import Scheduler as Settings
from tests.unit.scheduler.poison import PLACES, poison
from tests.unit.scheduler.world import World

EXAMPLES = int(os.environ.get("CORE_LAWS_EXAMPLES", "150"))  # CORE_LAWS_EXAMPLES=5000 takes about half an hour


class CoreMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(["playback", "fcfs", "fixed"]),
        look_ahead=st.booleans(),
        step_seconds=st.sampled_from([0.001, 0.01]),
        max_batch=st.integers(1, 4),
        budget=st.sampled_from([4, 16, 64]),
        window=st.sampled_from([0.1, 1.0, 20.0]),
        park=st.sampled_from([0.1, 10.0]),
    )
    def start(
        self,
        policy: str,
        look_ahead: bool,
        step_seconds: float,
        max_batch: int,
        budget: int,
        window: float,
        park: float,
    ) -> None:
        self.world = World(
            Settings(
                policy=policy,  # type: ignore[arg-type]
                look_ahead=look_ahead,
                max_batch=max_batch,
                prefill_budget=budget,
                unread_seconds=window,
                park_seconds=park,
                lean_seconds=park / 2,
                max_waiting=6,
                max_first_chunk=4,
                max_chunk=8,
            )
        )
        self.cancelled: set[str] = set()
        self.open: list[str] = []
        self.world.gateways.append("gateway-1")
        self.world.join_ar().seconds = step_seconds
        self.world.join_vocoder()

    @rule(
        turns=st.lists(st.integers(1, 20), min_size=1, max_size=3),
        lengths=st.lists(st.integers(0, 15), min_size=3, max_size=3),
        max_frames=st.integers(1, 30),
        output=st.sampled_from(["audio", "codes"]),
        streaming=st.booleans(),
        deadline=st.sampled_from([None, 0.05, 5.0]),
        voice=st.integers(0, 2),
        client=st.sampled_from(["a", "b"]),
        gateway=st.integers(0, 1),
    )
    def submit(
        self,
        turns: list[int],
        lengths: list[int],
        max_frames: int,
        output: str,
        streaming: bool,
        deadline: float | None,
        voice: int,
        client: str,
        gateway: int,
    ) -> None:
        ends = [sum(lengths[: turn + 1]) for turn in range(len(turns))]
        self.world.submit(turns, ends, max_frames, output, streaming, deadline, voice, client, gateway=gateway)

    @rule(turns=st.lists(st.integers(1, 9), min_size=1, max_size=2), frames=st.integers(0, 9))
    def submit_open(self, turns: list[int], frames: int) -> None:
        ends = [frames * (turn + 1) for turn in range(len(turns))]
        self.open.append(self.world.submit(turns, ends, max_frames=25, room=30))

    @rule(frames=st.integers(1, 20))
    def vocode(self, frames: int) -> None:
        self.world.vocode(frames)

    @rule(turns=st.lists(st.integers(1, 9), max_size=2), frames=st.integers(0, 9), last=st.booleans())
    def extend(self, turns: list[int], frames: int, last: bool) -> None:
        if self.open:
            request = self.open[-1]
            end = self.world.jobs[request].ends[-1]
            self.world.extend(request, turns, [end + frames * (turn + 1) for turn in range(len(turns))], last)
            if last:
                self.open.pop()

    @rule()
    def step(self) -> None:
        self.world.step()

    @rule()
    def call(self) -> None:
        self.world.call()

    @rule(seconds=st.floats(0, 1))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.carry_out()

    @rule()
    def clients_read(self) -> None:
        self.world.read_all()

    @rule(pick=st.integers(0, 1000))
    def cancel(self, pick: int) -> None:
        alive = [request for request in self.world.jobs if request not in self.world.ended]
        if alive:
            request = alive[pick % len(alive)]
            self.cancelled.add(request)
            self.world.core.cancel(request, "cancelled")
            self.world.carry_out()

    @rule(pick=st.integers(0, 1000), where=st.sampled_from(PLACES))
    def poison(self, pick: int, where: str) -> None:
        alive = list(self.world.core.requests.values())
        if alive:
            request = alive[pick % len(alive)]
            self.cancelled.add(request.id)
            poison(request, where)
            self.world.carry_out()

    @rule()
    def encode(self) -> None:
        self.world.submit_clip()

    @rule()
    def finish_clip(self) -> None:
        self.world.encode()

    @rule(kind=st.sampled_from(["ar", "vocoder"]), delivered=st.booleans())
    def lose_worker(self, kind: str, delivered: bool) -> None:
        workers = self.world.ar if kind == "ar" else self.world.vocoders
        if workers:
            self.world.lose(next(iter(workers)), delivered)

    @rule(kind=st.sampled_from(["ar", "vocoder"]))
    def stall_worker(self, kind: str) -> None:
        workers = self.world.ar if kind == "ar" else self.world.vocoders
        if workers:
            self.world.stall(next(iter(workers)))

    @rule()
    def late_answer(self) -> None:
        self.world.late_answer()

    @rule(
        kind=st.sampled_from(["ar", "vocoder"]),
        sizes=st.fixed_dictionaries(
            {"slots": st.integers(1, 5), "pages": st.sampled_from([32, 64]), "max_prefill_tokens": st.integers(4, 20)}
        ),
    )
    def join_worker(self, kind: str, sizes: dict[str, int]) -> None:
        if kind == "ar" and len(self.world.ar) < 2:
            self.world.join_ar(**sizes)
        elif kind == "vocoder" and len(self.world.vocoders) < 2:
            self.world.join_vocoder()

    @rule(gateway=st.integers(0, 1))
    def gateway_lost_and_back(self, gateway: int) -> None:
        core, name = self.world.core, self.world.gateways[gateway]
        all_requests = [*core.requests.values(), *core.waiting]
        self.cancelled.update(request.id for request in all_requests if request.gateway == name)
        core.peer_lost(name, self.world.now)
        for vocoder in self.world.vocoders:
            core.attached(name, vocoder)
        self.world.carry_out()

    @rule()
    def restart_scheduler(self) -> None:
        """The next scheduler takes over what gateways have, except cancelled requests."""
        self.world.restart()
        for request in self._under_way():
            self.world.resume(request, another=True)

    @rule(pick=st.integers(0, 1000))
    def ask_again(self, pick: int) -> None:
        """A gateway asks for sound that is merely late, or asks twice."""
        under_way = [request for request in self._under_way() if request not in self.world.ended]
        if under_way:
            self.world.resume(under_way[pick % len(under_way)])

    def _under_way(self) -> list[str]:
        return [
            request for request in self.world.jobs if request not in self.cancelled and not self.world.over(request)
        ]

    @rule(seconds=st.sampled_from([5.0, 40.0, 1e5]))
    def clock_jumps(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.carry_out()

    @invariant()
    def bounds_hold(self) -> None:
        core = self.world.core
        assert len(core.waiting) <= core.settings.max_waiting
        for worker in core.ar_workers.values():
            own = [sequence.pages[len(sequence.shared) :] for sequence in worker.sequences.values()]
            held = [page for pages in own for page in pages]
            assert len(set(held)) == len(held)
            assert worker.pages.available >= 0
            assert len(held) <= worker.pages.active
            assert worker.pages.reserved == sum(sequence.reserved for sequence in worker.sequences.values())

    def teardown(self) -> None:
        world = self.world
        if not world.ar:
            world.join_ar()
        if not world.vocoders:
            world.join_vocoder()
        world.settle()
        for _ in range(10):  # what waits for a place, or for more text, runs into its bound
            world.now += 100.0
            world.carry_out()
            world.settle()
        for request in world.jobs:
            if request not in self.cancelled:
                assert request in world.ended, "every request ends"
                world.check_ended(request)
        world.check_idle()


CoreMachine.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCoreLaws = CoreMachine.TestCase
