"""Who is refused at once rather than kept waiting: beyond the bounds, or without a chance of first sound in time.

The latter is predicted by rules of thumb, each of which refuses: somebody has been silent for most of the deadline
already; the work ahead takes longer than the deadline; the listeners already served are close to running dry.
"""

from __future__ import annotations

import math
import statistics

from common.config import Scheduler as Settings
from common.messages import Failure
from scheduler.planning.policy import first_chunk
from scheduler.requests.request import Request
from scheduler.requests.waiting import WaitingQueue
from scheduler.resources.placement import LOOK_AHEAD_POSITIONS
from scheduler.resources.workers import ArWorker, VocoderWorker

SILENT_SHARE = 0.6  # of the deadline for which somebody may have been silent
LISTENERS = 20  # below so many, the reserve of the poorest says little
POOREST = 20  # the poorest is the first of so many quantiles
SETTLED_SECONDS = 2.0  # a listener counts once it has had so much sound


def refusal(
    request: Request,
    waiting: WaitingQueue,
    ar_workers: list[ArWorker],
    vocoders: list[VocoderWorker],
    settings: Settings,
) -> Failure | None:
    """Why a request that has just arrived is not queued; None when it is."""
    positions, context = request.prompt_tokens, max(worker.context for worker in ar_workers)
    if positions + LOOK_AHEAD_POSITIONS >= context:
        message = f"text and references need {positions} of {context} positions"
        return Failure(400, "context_length_exceeded", message)
    if len(waiting) >= settings.max_waiting:
        return Failure(429, "queue_full", f"{len(waiting)} requests wait already", retry_after=2)
    judged = request.deadline is not None and settings.refuse_late
    if judged and too_late(request, request.arrived, waiting, ar_workers, vocoders, settings):
        return Failure(503, "overloaded", "first sound is not to be had in time", retry_after=1)
    return None


def seconds_to_first_sound(
    request: Request,
    waiting: WaitingQueue,
    ar_workers: list[ArWorker],
    vocoders: list[VocoderWorker],
    settings: Settings,
) -> float:
    """Expected time from now to the request's first sound."""
    worker = max(ar_workers, key=lambda candidate: candidate.slots.free)
    ahead = len(waiting) - sum(candidate.slots.free for candidate in ar_workers) + 1
    places = sum(1 / candidate.between_ends.value for candidate in ar_workers if candidate.between_ends.value > 0)
    for_a_place = max(0, ahead) / places if places else 0.0
    backlog = sum(_prompt_left(other) for candidate in ar_workers for other in candidate.requests.values())
    backlog += sum(other.prompt_tokens for other in waiting)
    prompts = (backlog / len(ar_workers) + request.prompt_tokens) / settings.prefill_budget
    step = worker.step_cost.predict(len(worker.requests) + 1, settings.prefill_budget)
    call = min((vocoder.call_seconds.value for vocoder in vocoders), default=0.0)
    step_seconds, frame_seconds = worker.step_seconds.value, worker.frame_seconds
    frames = first_chunk(step_seconds, call, frame_seconds, settings.min_chunk, settings.max_first_chunk)
    return for_a_place + math.ceil(prompts) * step + frames * step_seconds + 2 * call


def too_late(
    request: Request,
    now: float,
    waiting: WaitingQueue,
    ar_workers: list[ArWorker],
    vocoders: list[VocoderWorker],
    settings: Settings,
) -> bool:
    """Whether the request, which has a deadline, should be refused."""
    assert request.deadline is not None, "only requests with a deadline can be late"
    limit = request.deadline - now
    served = [other for vocoder in vocoders for other in vocoder.requests.values() if other.streaming]
    silent = [
        now - other.arrived for other in (*waiting, *served) if other.play_end is None and other.deadline is not None
    ]
    if max(silent, default=0.0) > SILENT_SHARE * limit:
        return True
    if _poorest_reserve(served, now, ar_workers[0].frame_seconds) < settings.guard_seconds:
        return True
    return seconds_to_first_sound(request, waiting, ar_workers, vocoders, settings) > limit


def _prompt_left(request: Request) -> int:
    return request.prompt_left if request.resting_since is None else 0


def _poorest_reserve(served: list[Request], now: float, frame_seconds: float) -> float:
    settled = SETTLED_SECONDS / frame_seconds
    reserves = [
        other.play_end - now
        for other in served
        if other.play_end is not None and other.delivered > settled and not other.generated
    ]
    if len(reserves) < LISTENERS:
        return math.inf
    return statistics.quantiles(reserves, n=POOREST, method="inclusive")[0]
