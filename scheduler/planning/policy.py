"""The policies: which requests a worker admits, which ones decode in a step, and how large vocoder chunks are.

``playback`` (the default) knows how much sound each listener has buffered; ``fcfs`` is plain continuous batching with
chunks of a fixed size; ``fixed`` is static batching: a batch is admitted only when the previous one has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from common.config import Scheduler as Settings
from scheduler.requests.request import Request
from scheduler.workers.ar_worker import ArWorker, Sequence
from scheduler.workers.vocoder_worker import VocoderWorker

SAFETY = 1.5  # margin: a step or a call may take this many times as long as expected
FILL_SHARE = 0.5  # share of the largest call up to which calls are filled
BUFFER_SHARE = 0.5  # share of the listener's buffer that the next chunk should last; larger chunks make others wait
PARKING_GAIN = 0.1  # share of a step's time that parking must save
LAST_CHUNK_SECONDS = 0.5  # listeners with this much buffered yield to a reply's last chunk, which ends the reply
STARVATION_SECONDS = 1.0  # a request without a playback clock becomes urgent after this long

StepSeconds: TypeAlias = Callable[[Request], float]


class Situation(NamedTuple):
    """Circumstances of a step's choice besides its candidates."""

    now: float
    prefill_rows: int  # rows and positions that prompts take in this step
    prefill_tokens: int


class Policy(Protocol):
    """The decisions in which the policies differ."""

    def may_admit(self, worker: ArWorker) -> bool:
        """Return whether the worker takes new requests now."""

    def choose(self, worker: ArWorker, candidates: list[Sequence], situation: Situation) -> list[Sequence]:
        """Choose and order the sequences that decode in this step."""

    def due(self, request: Request, frames: int, vocoder: VocoderWorker, step_seconds: StepSeconds, now: float) -> bool:
        """Return whether this many unsent frames are enough for the next call. ``step_seconds``: of its AR worker."""

    def fill_target(self, vocoder: VocoderWorker) -> int:
        """Frames up to which a call is filled with frames that are not due yet."""

    def urgency(self, request: Request, now: float) -> tuple[float, ...]:
        """Sort key of chunks: the smallest is vocoded first."""


class Fcfs:
    """First come, first served. ``batchwise``: admit a new batch only when the previous one has ended."""

    def __init__(self, settings: Settings, batchwise: bool) -> None:
        self._settings = settings
        self._batchwise = batchwise

    def may_admit(self, worker: ArWorker) -> bool:
        if not self._batchwise or not worker.sequences:
            worker.batch_open = True
        return worker.batch_open

    def choose(self, worker: ArWorker, candidates: list[Sequence], situation: Situation) -> list[Sequence]:
        return candidates[: max(0, self._settings.max_batch - situation.prefill_rows)]

    def due(self, request: Request, frames: int, vocoder: VocoderWorker, step_seconds: StepSeconds, now: float) -> bool:
        return frames >= self._settings.chunk

    def fill_target(self, vocoder: VocoderWorker) -> int:
        return 0

    def urgency(self, request: Request, now: float) -> tuple[float, ...]:
        return (request.arrived,)


class Playback:
    """Serves first the requests without sound, then those whose buffer runs dry soonest.

    A stream well ahead of its listener sits out a step (is parked) only if another request gains by it.
    """

    def __init__(self, settings: Settings, frame_seconds: float) -> None:
        self._settings = settings
        self._frame = frame_seconds

    def may_admit(self, worker: ArWorker) -> bool:
        return True

    def choose(self, worker: ArWorker, candidates: list[Sequence], situation: Situation) -> list[Sequence]:
        settings = self._settings
        slacks = {sequence.request.id: self._slack(sequence, situation.now) for sequence in candidates}
        needy = [
            sequence for sequence in candidates if not settings.park_seconds <= slacks[sequence.request.id] < math.inf
        ]
        chosen = needy if self._parking_pays(worker, len(needy), len(candidates), situation) else candidates
        room = max(0, settings.max_batch - situation.prefill_rows)
        silent = situation.prefill_tokens > 0 or -math.inf in slacks.values()
        if len(chosen) > room or silent:
            chosen = sorted(chosen, key=lambda sequence: slacks[sequence.request.id])
        if silent and not self._pages_are_scarce(worker):
            chosen = self._shrink(worker, chosen, slacks, situation)
        return chosen[:room]

    def due(self, request: Request, frames: int, vocoder: VocoderWorker, step_seconds: StepSeconds, now: float) -> bool:
        """First the smallest chunk that lasts until the second is there, then half of the listener's buffer.

        The whole buffer if there is no other stream. Files wait for a full call.
        """
        settings = self._settings
        if frames >= settings.max_chunk:
            return True
        if not request.streaming:
            return vocoder.unsent >= settings.max_call_frames
        sound_end = self._sound_end(request, now)
        if sound_end is not None:
            share = BUFFER_SHARE if len(vocoder.streams) > 1 else 1.0
            return frames >= settings.min_chunk and share * (sound_end - now) < (frames + 1) * self._frame
        call = vocoder.call_seconds.value
        step = step_seconds(request)
        return frames >= first_chunk(step, call, self._frame, settings.min_chunk, settings.max_first_chunk)

    def fill_target(self, vocoder: VocoderWorker) -> int:
        """A vocoder that can hardly keep up saves the base cost of small calls."""
        return int(FILL_SHARE * self._settings.max_call_frames) if vocoder.saturated else 0

    def urgency(self, request: Request, now: float) -> tuple[float, ...]:
        if not request.streaming:
            starved = now - request.playback.last_sent_at >= STARVATION_SECONDS
            return (-math.inf if starved else math.inf, request.arrived)
        sound_end = self._sound_end(request, now)
        if sound_end is not None and request.generated:
            sound_end = min(sound_end, now + LAST_CHUNK_SECONDS)
        return (-math.inf if sound_end is None else sound_end, request.arrived)

    def _sound_end(self, request: Request, now: float) -> float | None:
        """Time at which all sound sent to the vocoder will have been played; None before any was sent."""
        playback = request.playback
        on_its_way = max(0, playback.sent - playback.delivered)
        if playback.play_end is None and not on_its_way:
            return None
        return (now if playback.play_end is None else playback.play_end) + on_its_way * self._frame

    def _parking_pays(self, worker: ArWorker, needy: int, all_: int, situation: Situation) -> bool:
        """Return whether somebody in the step gains if those far ahead sit out: it is too full, or ends clearly sooner.

        Requests that wait for a place don't gain: whoever could be admitted now is in this step already.
        """
        others = needy + situation.prefill_rows
        if needy == all_ or self._pages_are_scarce(worker) or not (others or situation.prefill_tokens):
            return False
        if all_ + situation.prefill_rows > self._settings.max_batch:
            return True
        tokens = situation.prefill_tokens
        shorter = worker.step_cost.predict(others, tokens)
        return shorter <= (1 - PARKING_GAIN) * worker.step_cost.predict(all_ + situation.prefill_rows, tokens)

    def _pages_are_scarce(self, worker: ArWorker) -> bool:
        """Return whether streams far ahead should rather end soon, and free their pages."""
        return worker.pages.available < self._settings.kv_reserve * worker.pages.size

    def _slack(self, sequence: Sequence, now: float) -> float:
        """Seconds for which the listener can play all frames generated so far.

        Files have no playback clock: they come last until they are starved.
        """
        request = sequence.request
        if request.streaming:
            playback = request.playback
            if playback.play_end is None:
                return -math.inf
            return playback.play_end - now + (request.history.frames - playback.delivered) * self._frame
        return -math.inf if now - sequence.last_planned_at >= STARVATION_SECONDS else math.inf

    def _shrink(
        self, worker: ArWorker, chosen: list[Sequence], slacks: dict[str, float], situation: Situation
    ) -> list[Sequence]:
        """While somebody has no sound: leave out those ahead, if the step's cost falls nearly as much as its size."""
        needy = [sequence for sequence in chosen if slacks[sequence.request.id] < self._settings.lean_seconds]
        few, many = len(needy) + situation.prefill_rows, len(chosen) + situation.prefill_rows
        if not 0 < few < many:
            return chosen
        tokens = situation.prefill_tokens
        dearer = worker.step_cost.predict(few, tokens) / few / (worker.step_cost.predict(many, tokens) / many)
        return needy if dearer <= self._settings.lean_ratio else chosen


def first_chunk(step_seconds: float, call_seconds: float, frame_seconds: float, least: int, most: int) -> int:
    """Frames of the first chunk: its sound must last until the second one, of at least ``least`` frames, is there.

    The smallest n with n * frame >= max(n, least) * step + 2 calls (one may be at work), steps with a margin; at most
    ``most``.
    """
    step = SAFETY * step_seconds
    for frames in range(1, most):
        if frames * frame_seconds >= max(frames, least) * step + 2 * call_seconds:
            return frames
    return most


def make_policy(settings: Settings, frame_seconds: float) -> Policy:
    """Make the configured policy."""
    if settings.policy == "playback":
        return Playback(settings, frame_seconds)
    return Fcfs(settings, batchwise=settings.policy == "fixed")
