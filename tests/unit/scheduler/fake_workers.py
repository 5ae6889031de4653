"""Fake workers that check every plan they get, and answer when told to.

Codes are a function of (seed, frame), so that a frame that is lost, doubled, swapped or given to another request shows.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from common.messages import (
    REPETITION_WINDOW,
    Array,
    ArWorkerHello,
    DecodeDone,
    DecodePlan,
    EncodeAudio,
    Prefill,
    StepDone,
    StepPlan,
    Submit,
    VocoderWorkerHello,
)

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
    """A request as the test knows it: each turn's prompt, and the frame at which it ends, counted over all turns."""

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
        """The turn that continues after this many positions."""
        turn = filled = first = 0
        for number, (prompt, end) in enumerate(zip(self.prompts, self.ends, strict=False)):
            if filled + prompt.shape[1] <= position:
                turn = number
            filled += prompt.shape[1] + end - first
            first = end
        return turn


class FakeAr:
    """An AR worker that keeps page tables and the content of pages, and checks each plan against them."""

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
        """A turn that is continued has its repetition window; one that begins has none."""
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
