"""AR workers as the scheduler sees them: resources, sequences, and steps in flight."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, TypeAlias

from common.messages import ArWorkerHello
from scheduler.requests.request import Request
from scheduler.resources.costs import HANG_FACTOR, Average, Lengths, LinearCost
from scheduler.resources.pages import PagePool
from scheduler.resources.prefix_cache import Node
from scheduler.resources.slots import SlotPool

STEP_GUESS = 0.01  # seconds, until the first result
LEAST_AHEAD = 0.004  # seconds of work that a device should have queued while the host handles the previous step


class Sequence:
    """A request's place on an AR worker: slot, pages and progress there. Changed by the planner of steps.

    ``epoch`` grows when a turn ends, so that a row of an earlier epoch, planned before the end was known, is recognised
    and dropped.
    """

    def __init__(self, request: Request, worker: ArWorker, keys: list[bytes], shared: list[Node], pages: int) -> None:
        """``shared``: held nodes of the prefix cache, the first of ``pages`` pages in the worst case."""
        self.request = request
        self.worker = worker
        self.lease = worker.slots.lease()
        self.slot = self.lease.slot
        self.page_keys = keys  # of the full pages of the first turn's prompt
        self.shared = shared
        self.pages = [node.page for node in shared]
        self.reserved = pages - len(shared)  # pages reserved and not yet taken
        self.assigned = False  # the worker knows of the sequence
        self.released = False
        self.prefilled = len(shared) * worker.page_size  # positions of the current turn's prompt
        self.position = self.prefilled  # KV positions planned so far
        self.epoch = 0
        self.first_frame = self.planned = request.frames  # frames received or planned
        self.last_planned_at = request.arrived

    @property
    def prompt_left(self) -> int:
        """Positions of the current turn's prompt that no step has yet."""
        return self.request.history.prompt.shape[1] - self.prefilled

    def finish_turn(self, position: int) -> None:
        """The current turn has ended. ``position``: the first that holds nothing of it."""
        self.position = position
        self.epoch += 1
        self.planned = self.request.frames
        self.worker.decoders.pop(self.request.id, None)

    def start_turn(self) -> None:
        """The request has begun its next turn, whose prompt is to be prefilled."""
        self.prefilled = 0
        self.worker.prompts[self.request.id] = self


Row: TypeAlias = tuple[Sequence, int, int]
"""A row of a step: the sequence, its epoch, and the first position after those that the step writes. A plain tuple:
hundreds are made for every step."""


class Step(NamedTuple):
    """A step in flight. ``prompts``: the requests of which it has a span of prompt. ``sent``: a time."""

    number: int
    rows: list[Row]
    prompt_tokens: int
    prompts: list[Request]
    sent: float


class ArWorker:
    """A registered AR worker."""

    def __init__(self, incarnation: str, registration: int, hello: ArWorkerHello, frame_seconds: float) -> None:
        self.incarnation = incarnation
        self.registration = registration
        self.name = hello.name
        self.page_size = hello.page_size
        self.context = min(hello.context, hello.pages * hello.page_size)
        self.semantic_begin = hello.semantic_begin
        self.max_prefill_tokens = hello.max_prefill_tokens  # per step
        self.frame_seconds = frame_seconds
        self.leaving = False
        self.slots = SlotPool(hello.slots)
        self.pages = PagePool(hello.pages)
        self.sequences: dict[str, Sequence] = {}  # by request, in order of admission
        self.prompts: dict[str, Sequence] = {}  # of these, those with a prompt to prefill
        self.decoders: dict[str, Sequence] = {}  # and those that can decode another frame
        self.batch_open = True  # static batching: the batch still takes requests
        self.in_flight: deque[Step] = deque()
        self.steps = 0
        self.released: list[int] = []  # slots whose release the worker has not been told
        self.answered = 0.0  # time of the newest result
        self.step_seconds = Average(STEP_GUESS)
        self.step_cost = LinearCost([STEP_GUESS, 0.0, 0.0])  # per row and prompt position
        self.lengths = Lengths()

    def admit(self, sequence: Sequence) -> None:
        """Begin a sequence; its prompt is to be prefilled."""
        self.sequences[sequence.request.id] = self.prompts[sequence.request.id] = sequence

    def release(self, sequence: Sequence) -> None:
        """End a sequence and release its slot and pages; a step in flight may still have rows of it."""
        for group in (self.sequences, self.prompts, self.decoders):
            group.pop(sequence.request.id, None)
        sequence.released = True
        self.lengths.add(sequence.request.frames - sequence.first_frame)
        self.slots.release(sequence.lease)
        if sequence.assigned:
            self.released.append(sequence.slot)
        last_step = self.in_flight[-1].number if self.in_flight else -1
        self.pages.release(sequence.pages[len(sequence.shared) :], sequence.shared, sequence.reserved, last_step)
        if not self.in_flight:
            self.pages.settle(self.steps)

    def held(self) -> dict[str, int]:
        """Resources held by requests, by kind."""
        pages, slots = self.pages, self.slots
        return {"active pages": pages.active, "reserved pages": pages.reserved, "slots": slots.size - slots.free}

    def at_work(self) -> set[str]:
        """Requests that the steps in flight prefill or decode."""
        return {
            request.id for step in self.in_flight for request in (*step.prompts, *(row[0].request for row in step.rows))
        }

    @property
    def has_suspect(self) -> bool:
        """Return whether it serves a request that is suspected of killing its workers."""
        return any(sequence.request.kills_ar for sequence in self.sequences.values())

    @property
    def ahead(self) -> int:
        """Steps to send before the one at work is answered: a second one pays where steps are short."""
        return 1 if self.step_seconds.value >= LEAST_AHEAD else 2

    def hangs(self, timeout: float, now: float) -> bool:
        """Return whether the step at work takes far longer than it should, and at least ``timeout`` seconds."""
        if not self.in_flight:
            return False
        step = self.in_flight[0]
        expected = self.step_cost.predict(len(step.rows), step.prompt_tokens)
        return now - max(step.sent, self.answered) > max(timeout, HANG_FACTOR * expected)

    @property
    def idle(self) -> bool:
        return not self.sequences and not self.in_flight

    def pages_for(self, positions: int) -> int:
        return -(-positions // self.page_size)
