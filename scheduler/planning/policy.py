"""The policies of the one loop: who is admitted, who decodes in a step, how much sound is made at a time.

``playback`` (the default) knows how much sound each listener has left; ``fcfs`` is plain continuous batching with
chunks of a fixed size; ``fixed`` is static batching: a batch is admitted only when the one before has ended.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from common.config import Scheduler as Settings
from scheduler.requests.request import Request
from scheduler.resources.workers import ArWorker, VocoderWorker

SAFETY = 1.5  # how much longer than expected a step or a call may take
FILLED = 0.5  # of the largest call
RESERVE_SHARE = 0.5  # of the listener's reserve, which the next chunk should last; larger ones make others wait
PARKING_GAIN = 0.1  # of a step's time, for which those far ahead sit out
LAST_CHUNK_SECONDS = 0.5  # of reserve of which others need no more, for a reply to be over
STARVATION_SECONDS = 1.0  # a request without a clock is served after so long as if it were silent


class Situation(NamedTuple):
    """What a step's choice depends on besides its candidates."""

    now: float
    prefill_rows: int  # rows and positions that prompts take in this step
    prefill_tokens: int
    queued: bool  # somebody waits for admission


class Policy(Protocol):
    """The decisions in which the policies differ."""

    def may_admit(self, worker: ArWorker) -> bool:
        """Whether the worker takes new requests now."""

    def choose(self, worker: ArWorker, candidates: list[Request], situation: Situation) -> list[Request]:
        """Who of those with a frame to draw decodes in this step, in what order."""

    def due(self, request: Request, frames: int, vocoder: VocoderWorker, now: float) -> bool:
        """Whether so many frames of a stream are enough for the next vocoder call."""

    def filled(self, vocoder: VocoderWorker) -> int:
        """Frames to which a call is filled with what others have, though it is not due."""

    def urgency(self, request: Request, now: float) -> tuple[float, ...]:
        """Whose chunk is made first: ascending."""


class Fcfs:
    """First come, first served. ``batchwise``: a new batch only when the last one has ended."""

    def __init__(self, settings: Settings, batchwise: bool) -> None:
        self._settings = settings
        self._batchwise = batchwise

    def may_admit(self, worker: ArWorker) -> bool:
        if not self._batchwise or not worker.requests:
            worker.filling = True
        return worker.filling

    def choose(self, worker: ArWorker, candidates: list[Request], situation: Situation) -> list[Request]:
        return candidates[: max(0, self._settings.max_batch - situation.prefill_rows)]

    def due(self, request: Request, frames: int, vocoder: VocoderWorker, now: float) -> bool:
        return frames >= self._settings.chunk

    def filled(self, vocoder: VocoderWorker) -> int:
        return 0

    def urgency(self, request: Request, now: float) -> tuple[float, ...]:
        return (request.arrived,)


class Playback:
    """Serves first who has no sound yet, then whose sound runs out soonest.

    A stream well ahead of its listener sits out a step only if somebody else gains by it.
    """

    def __init__(self, settings: Settings, frame_seconds: float) -> None:
        self._settings = settings
        self._frame = frame_seconds

    def may_admit(self, worker: ArWorker) -> bool:
        return True

    def choose(self, worker: ArWorker, candidates: list[Request], situation: Situation) -> list[Request]:
        settings = self._settings
        slacks = {request.id: self._slack(request, situation.now) for request in candidates}
        behind = [request for request in candidates if not settings.park_seconds <= slacks[request.id] < math.inf]
        chosen = behind if self._parking_pays(worker, len(behind), len(candidates), situation) else candidates
        room = max(0, settings.max_batch - situation.prefill_rows)
        silent = situation.prefill_tokens > 0 or -math.inf in slacks.values()
        if len(chosen) > room or silent:
            chosen = sorted(chosen, key=lambda request: slacks[request.id])
        if silent and not self._pages_are_scarce(worker):
            chosen = self._lean(worker, chosen, slacks, situation)
        return chosen[:room]

    def due(self, request: Request, frames: int, vocoder: VocoderWorker, now: float) -> bool:
        """For a listener first the smallest chunk that lasts until the second is there, then half of the reserve, or
        all of it where there is no other stream."""
        settings = self._settings
        if frames >= settings.max_chunk:
            return True
        if not request.streaming:  # nobody waits for this chunk: a call is worth it when it is full
            return vocoder.unspoken >= settings.max_call_frames
        sound_end = self._sound_end(request, now)
        if sound_end is not None:
            share = RESERVE_SHARE if len(vocoder.requests) > 1 else 1.0
            return frames >= settings.min_chunk and share * (sound_end - now) < (frames + 1) * self._frame
        step = request.ar.step_seconds.value if request.ar is not None else 0.0
        call = vocoder.call_seconds.value
        return frames >= first_chunk(step, call, self._frame, settings.min_chunk, settings.max_first_chunk)

    def filled(self, vocoder: VocoderWorker) -> int:
        """A vocoder that can hardly keep up saves the base cost of small calls."""
        return int(FILLED * self._settings.max_call_frames) if vocoder.saturated else 0

    def urgency(self, request: Request, now: float) -> tuple[float, ...]:
        if not request.streaming:
            waited = now - request.asked_sound >= STARVATION_SECONDS
            return (-math.inf if waited else math.inf, request.arrived)
        sound_end = self._sound_end(request, now)
        if sound_end is not None and request.generated:
            sound_end = min(sound_end, now + LAST_CHUNK_SECONDS)
        return (-math.inf if sound_end is None else sound_end, request.arrived)

    def _sound_end(self, request: Request, now: float) -> float | None:
        """When all sound that was asked for will have been played; None before any was."""
        asked = max(0, request.handed - request.delivered)
        if request.play_end is None and not asked:
            return None
        return (now if request.play_end is None else request.play_end) + asked * self._frame

    def _parking_pays(self, worker: ArWorker, behind: int, all_: int, situation: Situation) -> bool:
        """Whether somebody gains if those far ahead sit out: the step is too full, or is over clearly sooner."""
        others = behind + situation.prefill_rows
        if behind == all_ or self._pages_are_scarce(worker) or not (others or situation.queued):
            return False
        if all_ + situation.prefill_rows > self._settings.max_batch:
            return True
        tokens = situation.prefill_tokens
        shorter = worker.step_cost.predict(others, tokens)
        return shorter <= (1 - PARKING_GAIN) * worker.step_cost.predict(all_ + situation.prefill_rows, tokens)

    def _pages_are_scarce(self, worker: ArWorker) -> bool:
        """Then who is ahead should end soon, and free its pages."""
        return worker.pages.available < self._settings.kv_reserve * worker.pages.size

    def _slack(self, request: Request, now: float) -> float:
        """Seconds the listener can go on with all frames generated; who has no clock comes last, but not for ever."""
        if request.streaming:
            if request.play_end is None:
                return -math.inf
            return request.play_end - now + (request.frames - request.delivered) * self._frame
        return -math.inf if now - request.asked >= STARVATION_SECONDS else math.inf

    def _lean(
        self, worker: ArWorker, chosen: list[Request], slacks: dict[str, float], situation: Situation
    ) -> list[Request]:
        """While somebody is silent: without those far ahead, if the step's cost falls nearly as much as its size."""
        needy = [request for request in chosen if slacks[request.id] < self._settings.lean_seconds]
        few, many = len(needy) + situation.prefill_rows, len(chosen) + situation.prefill_rows
        if not 0 < few < many:
            return chosen
        tokens = situation.prefill_tokens
        dearer = worker.step_cost.predict(few, tokens) / few / (worker.step_cost.predict(many, tokens) / many)
        return needy if dearer <= self._settings.lean_ratio else chosen


def first_chunk(step_seconds: float, call_seconds: float, frame_seconds: float, least: int, most: int) -> int:
    """Frames of the first chunk: its sound must last until the second, as large or of ``least`` frames, is there.

    n * frame >= max(n, least) * step + 2 calls (one may be under way), steps with a margin; at most ``most``.
    """
    step = SAFETY * step_seconds
    for frames in range(1, most):
        if frames * frame_seconds >= max(frames, least) * step + 2 * call_seconds:
            return frames
    return most


def make_policy(settings: Settings, frame_seconds: float) -> Policy:
    """The policy that the configuration names."""
    if settings.policy == "playback":
        return Playback(settings, frame_seconds)
    return Fcfs(settings, batchwise=settings.policy == "fixed")
