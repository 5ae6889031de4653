"""A world for the pure core: fake workers and gateways around it, and the faults that may befall them."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import deque
from collections.abc import Callable

import numpy as np
from msgspec import structs

from common.config import Scheduler as Settings
from common.messages import (
    Codes,
    DecodePlan,
    Detached,
    Disowned,
    EncodeAudio,
    Encoded,
    Ended,
    Extend,
    Rested,
    Resume,
    Sampling,
    Shutdown,
    StepPlan,
    Submit,
    Vocode,
)
from scheduler.core import Scheduler
from scheduler.observe.journal import Journal
from scheduler.observer import Observer, Observers
from tests.unit.scheduler.fake_gateways import FakeGateways
from tests.unit.scheduler.fake_workers import CALL_SECONDS, FRAME_SECONDS, FakeAr, FakeVocoder, Job, called, codes_of


class World(FakeGateways):
    """The core with its peers. Time passes when a test advances :attr:`now`."""

    def __init__(self, settings: Settings, observer: Observer | None = None, **remembered: int) -> None:
        """``remembered``: bounds of the journal."""
        super().__init__()
        self.now = 0.0
        self._observer, self._remembered = observer or Observer(), remembered
        self.core = Scheduler(settings, FRAME_SECONDS, self.observers())
        self.names = 0
        self.by_seed: dict[int, Job] = {}
        self.ar: dict[str, FakeAr] = {}
        self.vocoders: dict[str, FakeVocoder] = {}
        self.gateways = ["gateway-0"]
        self.gateway_of: dict[str, str] = {}
        self.late: deque[Callable[[], object]] = deque()  # answers of earlier registrations

    def observers(self) -> Observer:
        """A journal of its own, and the test's observer, for the next scheduler."""
        self.journal = Journal(clock=lambda: self.now, **self._remembered)
        return Observers(self.journal, self._observer)

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}-{self.names}"

    def join_ar(self, **sizes: int) -> FakeAr:
        worker = FakeAr(self.name("ar"), **sizes)
        self.ar[worker.incarnation] = worker
        self.core.ar_joined(worker.incarnation, worker.hello)
        self.carry_out()
        return worker

    def join_vocoder(self, slots: int = 6) -> FakeVocoder:
        worker = FakeVocoder(self.name("vocoder"), slots)
        self.vocoders[worker.incarnation] = worker
        self.core.vocoder_joined(worker.incarnation, worker.hello)
        for gateway in self.gateways:
            self.core.attached(gateway, worker.incarnation)
        self.carry_out()
        return worker

    def lose(self, incarnation: str, delivered: bool = False) -> None:
        """Lose a worker. ``delivered``: a vocoder worker's last sound has arrived, but not its answer."""
        self.ar.pop(incarnation, None)
        vocoder = self.vocoders.pop(incarnation, None)
        if vocoder is not None and vocoder.plans and delivered:
            self._hear(vocoder.plans[0][0])
        self.core.peer_lost(incarnation, self.now)
        self.carry_out()

    def kills(self, incarnation: str, request: str) -> bool:
        """Return whether the worker is about to work on the request."""
        if incarnation in self.vocoders:
            plans = self.vocoders[incarnation].plans
            return bool(plans) and any(item.request == request for item in plans[0][0].items)
        worker, seed = self.ar[incarnation], self.jobs[request].body.sampling.seed
        if not worker.plans:
            return False
        plan, arrays = worker.plans[0]
        seeds = worker.seeds | {assign.slot: assign.sampling.seed for assign in plan.assigned}
        slots = [prefill.slot for prefill in plan.prefills] + arrays[1].tolist()
        return any(seeds[slot] == seed for slot in slots)

    def stall(self, incarnation: str) -> None:
        """Stall a worker: it is given up and registers again under its incarnation; its answer comes late."""
        if incarnation in self.ar:
            self._stall_ar(incarnation)
        else:
            self._stall_vocoder(incarnation)
        self.carry_out()

    def _stall_ar(self, incarnation: str) -> None:
        worker = self.ar[incarnation]
        if worker.plans:
            done = worker.answer(self.by_seed)
            late = incarnation, done, worker.codes, worker.ended
            self.late.append(lambda: self.core.step_done(*late, self.now))
        self._register_again(incarnation)

    def _stall_vocoder(self, incarnation: str) -> None:
        worker = self.vocoders[incarnation]
        if worker.plans:
            plan, _ = worker.plans[0]
            self.late.append(lambda: (self._hear(plan), self.core.decode_done(incarnation, called(plan), self.now)))
        if worker.clips:
            clip = worker.clips[0]
            late = incarnation, Encoded(clip.request, None, clip.registration), [np.zeros((10, 3), np.int16)]
            self.late.append(lambda: self.core.encode_done(*late))
        self._register_again(incarnation)

    def _register_again(self, incarnation: str) -> None:
        """Have a worker forget everything and register under its incarnation."""
        self.core.peer_lost(incarnation, self.now)
        if incarnation in self.ar:
            self.ar[incarnation] = again = copy.copy(self.ar[incarnation])
            again.plans, again.tables = deque(), {}
            self.core.ar_joined(incarnation, again.hello)
        else:
            hello = self.vocoders[incarnation].hello
            self.vocoders[incarnation] = FakeVocoder(incarnation, hello.slots)
            self.core.vocoder_joined(incarnation, hello)
            for gateway in self.gateways:
                self.core.attached(gateway, incarnation)

    def late_answer(self) -> None:
        """Deliver an answer of an earlier registration, if the worker is registered: the shell drops the others."""
        if self.late:
            with contextlib.suppress(KeyError):
                self.late.popleft()()
            self.carry_out()

    def restart(self) -> None:
        """Replace the scheduler by the next one, which finds the workers as they are after a reset."""
        ar, vocoders = list(self.ar.values()), list(self.vocoders.values())
        self.ar, self.vocoders = {}, {}
        self.late.clear()
        self.core = Scheduler(self.core.settings, FRAME_SECONDS, self.observers())
        for worker in ar:
            hello = worker.hello
            sizes = {"slots": hello.slots, "pages": hello.pages, "page_size": hello.page_size}
            self.join_ar(**sizes, context=hello.context, max_prefill_tokens=hello.max_prefill_tokens)
        for vocoder in vocoders:
            self.join_vocoder(vocoder.hello.slots)

    def resume(self, request: str, another: bool = False) -> None:
        """Have the gateway ask for the rest of a request; ``another``: from another scheduler."""
        if another:
            self.ended.pop(request, None)
        job, received = self.jobs[request], self.have(request)
        codes = np.array([codes_of(job.body.sampling.seed, frame) for frame in range(received)], np.int16)
        if job.body.turns == [0]:
            given = np.array([codes_of(job.body.sampling.seed, frame) for frame in range(job.ends[-1])])
            what: Submit | Vocode = Vocode(request)
            arrays = [given, np.empty((0, 10), np.int16)]
        else:
            turns = [prompt.shape[1] for prompt in job.prompts]
            room = job.body.room - sum(turns[len(job.body.turns) :])
            what = structs.replace(job.body, turns=turns, room=room, open=request in self.open)
            arrays = [np.concatenate(job.prompts, 1), codes.reshape(-1, 10)]
        body = Resume(what, received, len(job.said) - 1, self.turn_starts.get(request, []))
        self.core.resume(self.gateway_of.get(request, self.gateways[0]), body, arrays, self.now)
        self.carry_out()

    def submit(
        self,
        turns: list[int],
        ends: list[int],
        max_frames: int = 40,
        output: str = "audio",
        streaming: bool = True,
        deadline: float | None = None,
        voice: int = 0,
        client: str = "",
        room: int = 0,
        priority: str = "interactive",
        gateway: int = 0,
    ) -> str:
        """Submit a request. Prompts of the same ``voice`` are equal over their common length."""
        request = self.name("request")
        seed = len(self.by_seed) + 1
        sampling = Sampling(0.8, 0.8, 0.8, 30, seed)
        body = Submit(
            request=request,
            output=output,  # type: ignore[arg-type]
            streaming=streaming,
            sampling=sampling,
            max_frames=max_frames,
            turns=turns,
            deadline=deadline,
            client=client,
            priority=priority,  # type: ignore[arg-type]
            open=room > 0,
            room=room,
        )
        prompt = np.full((11, sum(turns)), voice, np.int32)
        prompt[0] = np.arange(sum(turns))
        prompts = np.split(prompt, np.cumsum(turns)[:-1], 1)
        if room:
            self.open.add(request)
        self.jobs[request] = self.by_seed[seed] = Job(body, ends, prompts, [ends[-1]])
        self.gateway_of[request] = self.gateways[gateway]
        self.core.submit(self.gateways[gateway], body, prompt, self.now)
        self.carry_out()
        return request

    def vocode(self, frames: int) -> str:
        """Request the sound of given codes."""
        request = self.name("request")
        sampling = Sampling(0.0, 0.0, 1.0, 1, len(self.by_seed) + 1)
        body = Submit(request, "audio", False, sampling, frames + 1, [0], None)
        self.jobs[request] = self.by_seed[sampling.seed] = Job(body, [frames], [np.empty((11, 0), np.int32)], [frames])
        codes = np.array([codes_of(sampling.seed, frame) for frame in range(frames)])
        self.core.vocode(self.gateways[0], Vocode(request), codes, self.now)
        self.carry_out()
        return request

    def extend(self, request: str, turns: list[int], ends: list[int], last: bool) -> None:
        """Add turns to an open request."""
        prompt = np.full((11, sum(turns)), 9, np.int32)
        if last:
            self.open.discard(request)
        self.jobs[request].ends.extend(ends)
        self.jobs[request].said.append(self.jobs[request].ends[-1])
        self.jobs[request].prompts.extend(np.split(prompt, np.cumsum(turns)[:-1], 1) if turns else [])
        self.core.extend(request, Extend(request, turns, last), prompt)
        self.carry_out()

    def step(self) -> bool:
        """Have one AR worker answer its oldest plan."""
        for worker in self.ar.values():
            if worker.plans:
                done = worker.answer(self.by_seed)
                self.now += worker.seconds
                self.core.step_done(worker.incarnation, done, worker.codes, worker.ended, self.now)
                self.carry_out()
                return True
        return False

    def call(self, lost: bool = False, unreachable: bool = False) -> bool:
        """Have one vocoder worker answer its call. ``lost``: its sound gets lost; ``unreachable``: as it knows."""
        for worker in self.vocoders.values():
            if worker.plans:
                plan, _ = worker.plans.popleft()
                self.now += CALL_SECONDS
                if lost or unreachable:
                    self.cut.update(item.request for item in plan.items)
                else:
                    self._hear(plan)
                done = structs.replace(called(plan), unreachable=self.gateways if unreachable else [])
                self.core.decode_done(worker.incarnation, done, self.now)
                self.carry_out()
                return True
        return False

    def submit_clip(self, samples: int = 100) -> str:
        """Submit a reference clip."""
        clip = self.name("clip")
        self.core.encode(self.gateways[0], clip, np.zeros(samples, np.float32), self.now)
        self.carry_out()
        return clip

    def encode(self) -> bool:
        """Have one vocoder worker finish its clip."""
        for worker in self.vocoders.values():
            if worker.clips:
                clip = worker.clips.popleft()
                done = Encoded(clip.request, None, clip.registration)
                self.core.encode_done(worker.incarnation, done, [np.zeros((10, 3), np.int16)])
                self.carry_out()
                return True
        return False

    def read_all(self) -> None:
        for request, frames in self.sound.items():
            self.core.credit(request, frames)
        self.carry_out()

    def settle(self) -> None:
        """Answer all plans until nothing is left to do."""
        self.read_all()
        while self.step() or self.call() or self.encode():
            self.read_all()

    def carry_out(self) -> None:
        for peer, body, arrays in self.core.plan(self.now):
            if isinstance(body, StepPlan):
                assert body.prefills or len(arrays[1]), "no plan without rows is sent"
                self.ar[peer].plans.append((body, arrays))
                ahead = self.core.ar_workers[peer].ahead if self.core.settings.look_ahead else 0
                assert len(self.ar[peer].plans) <= 1 + ahead
            elif isinstance(body, DecodePlan):
                self.vocoders[peer].accept(body, arrays[0], self.jobs)
            elif isinstance(body, EncodeAudio):
                self.vocoders[peer].clips.append(body)
            elif isinstance(body, Rested):
                assert body.frames == self.jobs[body.request].said[body.extended]
                self.rested[body.request] = body
            elif isinstance(body, Detached):
                self.detached.append(body.vocoder)
            elif isinstance(body, Ended):
                assert peer == self.gateway_of.get(body.request, self.gateways[0]), "an end is told its own gateway"
                self._on_ended(body)
            elif isinstance(body, Codes):
                self._on_codes(body, arrays[0])
            elif isinstance(body, Encoded):
                assert body.request not in self.encoded, "a clip is answered once"
                self.encoded[body.request] = body
            elif isinstance(body, Disowned):
                self._register_again(peer)
            elif isinstance(body, Shutdown):
                self.ar.pop(peer, None)
                self.vocoders.pop(peer, None)

    def check_idle(self) -> None:
        """Check that nothing is held: the law of pages and slots."""
        core = self.core
        assert core.idle()
        assert not core.leaks()
        for worker in core.ar_workers.values():
            assert worker.pages.free + worker.pages.cached == worker.pages.size
            assert not worker.sequences
            assert not worker.prompts
            assert not worker.decoders
        assert not any(vocoder.streams for vocoder in core.vocoders.values())
        records = self.journal.recent(-math.inf, math.inf, work=False).requests
        assert all(record.ended is not None and record.reason is not None for record in records)
