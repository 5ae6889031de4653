"""A world for the pure core: workers and gateways that check every message they get, and answer when told to.

Codes are a function of (seed, frame), so that a frame that is lost, doubled, swapped or given to another request shows.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec import structs

from common.config import Scheduler as Settings
from common.messages import (
    REPETITION_WINDOW,
    Array,
    ArWorkerHello,
    Codes,
    DecodeDone,
    DecodePlan,
    Detached,
    Disowned,
    EncodeAudio,
    Encoded,
    Ended,
    Extend,
    Prefill,
    Rested,
    Resume,
    Sampling,
    Shutdown,
    StepDone,
    StepPlan,
    Submit,
    Vocode,
    VocoderWorkerHello,
)
from scheduler.core import Scheduler
from scheduler.observe.journal import Journal
from scheduler.observer import Observer, Observers

FRAME_SECONDS = 0.05
CALL_SECONDS = 0.01
SEMANTIC_BEGIN = 2000


def codes_of(seed: int, frame: int) -> Array:
    return np.array([(seed * 31 + frame * 7 + book) % 1000 for book in range(10)], np.int16)


def columns_of(seed: int, first: int, end: int) -> Array:
    """Frames as columns of a prompt, int32 [11, end - first]."""
    codes = np.array([codes_of(seed, frame) for frame in range(first, end)], np.int32).reshape(-1, 10).T
    return np.concatenate([codes[:1] + SEMANTIC_BEGIN, codes])


def called(plan: DecodePlan) -> DecodeDone:
    """The answer to a call."""
    return DecodeDone(plan.call, CALL_SECONDS, [], plan.registration)


class Job(NamedTuple):
    """What the test knows of a request: each turn's prompt, and at which frame it ends (counted over all turns)."""

    body: Submit
    ends: list[int]
    prompts: list[Array]
    said: list[int]  # at which frame all turns end that were there at first, and after each extension

    @property
    def sequence(self) -> Array:
        """All positions the request may fill: each turn's prompt, then its frames. int32 [11, n]"""
        parts, first = [np.empty((11, 0), np.int32)], 0
        for prompt, end in zip(self.prompts, self.ends, strict=False):
            parts += [prompt, columns_of(self.body.sampling.seed, first, end)]
            first = end
        return np.concatenate(parts, 1)

    def turn_at(self, position: int) -> int:
        """Which turn goes on behind so many positions."""
        turn = filled = first = 0
        for number, (prompt, end) in enumerate(zip(self.prompts, self.ends, strict=False)):
            if filled + prompt.shape[1] <= position:
                turn = number
            filled += prompt.shape[1] + end - first
            first = end
        return turn


class FakeAr:
    """An AR worker that keeps page tables and what each page holds, and checks each plan against them."""

    def __init__(
        self,
        name: str,
        slots: int = 4,
        pages: int = 64,
        page_size: int = 4,
        context: int = 128,
        max_prefill_tokens: int = 64,
    ) -> None:
        self.incarnation = name
        self.hello = ArWorkerHello("ar_worker", slots, pages, page_size, context, SEMANTIC_BEGIN, max_prefill_tokens)
        self.plans: deque[tuple[StepPlan, list[Array]]] = deque()
        self.seeds: dict[int, int] = {}
        self.tables: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}
        self.frames: dict[int, int] = {}
        self.turns: dict[int, int] = {}
        self.contents: dict[tuple[int, int], bytes] = {}  # (page, offset) to the position's column
        self.prefilled = 0
        self.seconds = 0.01  # that a step takes
        self.per_row = 0.0  # and a row adds to it

    def answer(self, jobs: dict[int, Job]) -> StepDone | None:
        """Execute the oldest plan; its codes and ends are in ``codes`` and ``ended``."""
        plan, (prompt, decodes, appends) = self.plans.popleft()
        for slot in plan.released:
            self.tables.pop(slot, None)
        for assign in plan.assigned:
            slot = assign.slot
            assert slot not in self.tables, "a slot is assigned while another sequence has it"
            self.seeds[slot], self.tables[slot], self.lengths[slot] = assign.sampling.seed, [], 0
            self.frames[slot] = self.turns[slot] = 0
        for slot, index, page in appends.tolist():
            assert index == len(self.tables[slot]), "pages are appended in order"
            self.tables[slot].append(page)
        rows: list[int] = []
        assert sum(prefill.tokens for prefill in plan.prefills) == prompt.shape[1] <= self.hello.max_prefill_tokens
        offset = 0
        for prefill in plan.prefills:
            self._prefill(prefill, prompt[:, offset : offset + prefill.tokens], jobs)
            offset += prefill.tokens
            if prefill.sample:
                rows.append(prefill.slot)
        for slot in decodes.tolist():
            self._write(slot, self.lengths[slot], b"frame")
            self.lengths[slot] += 1
            rows.append(slot)
        self.codes = np.array([self._draw(slot) for slot in rows], np.int16).reshape(-1, 10)
        self.ended = np.array([self._ends(slot, jobs) for slot in rows], np.uint8)
        return StepDone(plan.step, self.seconds + self.per_row * len(rows), plan.registration)

    def _prefill(self, prefill: Prefill, columns: Array, jobs: dict[int, Job]) -> None:
        slot = prefill.slot
        job = jobs[self.seeds[slot]]
        began = self.lengths[slot] == 0
        if began:
            self._check_shared(slot, prefill.start, job.sequence)
        else:
            # A turn may begin where steps, sent before the end was known, have written a position or two too many.
            assert 0 <= self.lengths[slot] - prefill.start <= 2
        end = prefill.start + prefill.tokens
        assert prefill.sample or end % self.hello.page_size == 0, "spans are cut at page boundaries"
        for index in range(prefill.tokens):
            self._write(slot, prefill.start + index, columns[:, index].tobytes())
        self.lengths[slot] = end
        self.prefilled += prefill.tokens
        if prefill.sample:
            self._check_shared(slot, end, job.sequence, frames=self.frames[slot] > 0)
            self.turns[slot] = job.turn_at(end)
            self._check_recent(prefill, job, self.turns[slot])
            assert prefill.turn == self.turns[slot], "no two draws of a request have the same noise"
            self.frames[slot] = prefill.frame

    def _check_shared(self, slot: int, positions: int, sequence: Array, frames: bool = False) -> None:
        """The first positions hold exactly the beginning of the request, whoever wrote them; ``frames``: its own frames
        among them were written by decodes."""
        for position in range(positions):
            written = self.contents[self._place(slot, position)]
            assert written == sequence[:, position].tobytes() or (frames and written == b"frame")

    def _check_recent(self, prefill: Prefill, job: Job, turn: int) -> None:
        """A turn that goes on has its window; one that begins has none."""
        began = job.ends[turn - 1] if turn else 0
        if prefill.recent is None:
            assert prefill.frame == began, "a turn begins"
            return
        assert prefill.frame > began
        said = columns_of(job.body.sampling.seed, began + 1, prefill.frame)[0]
        assert prefill.recent == said[-REPETITION_WINDOW:].tolist()

    def _place(self, slot: int, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self.hello.page_size)
        assert index < len(self.tables[slot]), "a position has no page"
        return self.tables[slot][index], offset

    def _write(self, slot: int, position: int, column: bytes) -> None:
        assert position < self.hello.context
        page, offset = self._place(slot, position)
        others = [table for other, table in self.tables.items() if other != slot]
        assert all(page not in table for table in others), "a page that is written belongs to one sequence"
        self.contents[page, offset] = column

    def _draw(self, slot: int) -> Array:
        self.frames[slot] += 1
        return codes_of(self.seeds[slot], self.frames[slot] - 1)

    def _ends(self, slot: int, jobs: dict[int, Job]) -> bool:
        job = jobs[self.seeds[slot]]
        return self.frames[slot] - 1 >= job.ends[min(self.turns[slot], len(job.ends) - 1)]


class FakeVocoder:
    """A vocoder worker that checks that each stream's frames come once and in order."""

    def __init__(self, name: str, slots: int = 6) -> None:
        self.incarnation = name
        self.hello = VocoderWorkerHello("vocoder_worker", slots, f"ipc://{name}")
        self.plans: deque[tuple[DecodePlan, list[Array]]] = deque()
        self.clips: deque[EncodeAudio] = deque()
        self.streams: dict[int, tuple[str, int]] = {}  # slot to request and next frame

    def accept(self, plan: DecodePlan, codes: Array, jobs: dict[str, Job]) -> None:
        assert len(self.plans) < 2, "one call, and at most the next"
        assert len({item.slot for item in plan.items}) == len(plan.items)
        assert sum(item.frames for item in plan.items) == len(codes)
        offset = 0
        for item in plan.items:
            assert item.frames > 0
            assert item.reset == (item.first == 0)
            assert item.heard <= jobs[item.request].ends[-1]
            if not item.reset:
                assert self.streams[item.slot] == (item.request, item.first), "a stream's slot is its own"
            self.streams[item.slot] = (item.request, item.first + item.frames)
            seed = jobs[item.request].body.sampling.seed
            for frame in range(item.frames):
                expected = codes_of(seed, item.first + frame)
                assert np.array_equal(codes[offset + frame], expected), "frames are the request's own"
            offset += item.frames
        self.plans.append((plan, [codes]))


class World:
    """The core and all around it. Times are handed in by advancing :attr:`now`."""

    def __init__(self, settings: Settings, observer: Observer | None = None, **remembered: int) -> None:
        """``remembered``: bounds of the journal."""
        self.now = 0.0
        self._observer, self._remembered = observer or Observer(), remembered
        self.core = Scheduler(settings, FRAME_SECONDS, self.observers())
        self.cut: set[str] = set()  # requests of which sound may be lost on its way
        self.names = 0
        self.jobs: dict[str, Job] = {}
        self.by_seed: dict[int, Job] = {}
        self.ar: dict[str, FakeAr] = {}
        self.vocoders: dict[str, FakeVocoder] = {}
        self.gateways = ["gateway-0"]
        self.gateway_of: dict[str, str] = {}
        self.sound: dict[str, int] = {}  # frames a gateway got as sound
        self.codes: dict[str, list[Array]] = {}
        self.rested: dict[str, Rested] = {}
        self.ended: dict[str, Ended] = {}
        self.encoded: dict[str, Encoded] = {}
        self.turn_starts: dict[str, list[int]] = {}  # of the frames that a gateway got
        self.open: set[str] = set()  # requests whose text goes on
        self.detached: list[str] = []  # vocoder workers to which a gateway is to attach again
        self.holes: set[str] = set()  # requests of which a gateway got frames after a hole, and dropped them
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
        """``delivered``: a vocoder worker's last sound has reached the gateways, its word of it not the core."""
        self.ar.pop(incarnation, None)
        vocoder = self.vocoders.pop(incarnation, None)
        if vocoder is not None and vocoder.plans and delivered:
            self._hear(vocoder.plans[0][0])
        self.core.peer_lost(incarnation, self.now)
        self.carry_out()

    def kills(self, incarnation: str, request: str) -> bool:
        """Whether the worker is about to work on the request."""
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
        """A worker stands still, is given up, and registers again under its incarnation; its answer comes late."""
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
        """A worker forgets everything and registers under its incarnation."""
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
        """An answer of an earlier registration comes, if the worker is registered: the shell drops the others."""
        if self.late:
            with contextlib.suppress(KeyError):
                self.late.popleft()()
            self.carry_out()

    def _hear(self, plan: DecodePlan) -> None:
        """Gateways get the sound of a call. What they have already they leave out; a hole they don't accept."""
        for item in plan.items:
            begin, end = max(item.first, item.heard), item.first + item.frames
            have = self.sound.get(item.request, 0)
            if begin > have and item.request in self.cut:
                self.holes.add(item.request)
                continue
            assert begin <= have or begin >= end, "no sound is left out"
            self.sound[item.request] = max(have, end) if begin < end else have
            self._note_turns(item.request, have, item.turn_starts)

    def _note_turns(self, request: str, have: int, starts: list[int]) -> None:
        self.turn_starts.setdefault(request, []).extend(start for start in starts if start >= have)

    def restart(self) -> None:
        """The scheduler dies, and the next one finds the workers as they are after a reset."""
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

    def have(self, request: str) -> int:
        """Frames that the gateway got."""
        return self.sound.get(request, 0) + len(self.codes.get(request, []))

    def over(self, request: str) -> bool:
        """Whether the gateway has all of a request."""
        ended = self.ended.get(request)
        return ended is not None and (ended.failure is not None or ended.frames == self.have(request))

    def resume(self, request: str, another: bool = False) -> None:
        """The gateway asks for the rest of a request; ``another``: of another scheduler."""
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
        """``voice``: requests of one voice have the same prompt as far as both go."""
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
        """Sound of given codes."""
        request = self.name("request")
        sampling = Sampling(0.0, 0.0, 1.0, 1, len(self.by_seed) + 1)
        body = Submit(request, "audio", False, sampling, frames + 1, [0], None)
        self.jobs[request] = self.by_seed[sampling.seed] = Job(body, [frames], [np.empty((11, 0), np.int32)], [frames])
        codes = np.array([codes_of(sampling.seed, frame) for frame in range(frames)])
        self.core.vocode(self.gateways[0], Vocode(request), codes, self.now)
        self.carry_out()
        return request

    def extend(self, request: str, turns: list[int], ends: list[int], last: bool) -> None:
        """More turns for an open request."""
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
        """A gateway wants a clip to be encoded."""
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
        """Answer everything until nothing is left to do."""
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

    def _on_ended(self, body: Ended) -> None:
        before = self.ended.get(body.request)
        assert before is None or (before.failure is None and body.failure is not None), "a request ends once"
        self.ended[body.request] = body

    def _on_codes(self, body: Codes, codes: Array) -> None:
        offset = 0
        for span in body.spans:
            got = self.codes.setdefault(span.request, [])
            assert span.first == len(got)
            self._note_turns(span.request, len(got), span.turn_starts)
            got.extend(codes[offset : offset + span.frames])
            offset += span.frames

    def check_ended(self, request: str) -> None:
        """A request that ended well has all its frames, its own, and no more."""
        ended, job = self.ended[request], self.jobs[request]
        if ended.failure is not None or ended.reason == "timeout":
            return
        expected = min(job.ends[-1], job.body.max_frames)
        assert ended.frames == expected
        assert ended.reason == ("stop" if job.ends[-1] < job.body.max_frames else "length")
        if job.body.output == "audio":
            assert self.sound.get(request, 0) == expected
        else:
            seed = job.body.sampling.seed
            assert len(self.codes[request]) == expected
            assert all(np.array_equal(code, codes_of(seed, n)) for n, code in enumerate(self.codes[request]))

    def check_idle(self) -> None:
        """Nothing is held: the law of pages, and of slots."""
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
