"""Admission control: refuses requests at once that exceed a bound or can't have their first sound in time.

Lateness is predicted by rules of thumb, each of which refuses: a request has been silent for most of the deadline
already; the work ahead takes longer than the deadline; the listeners being served are close to an underrun.
"""

from __future__ import annotations

import math
import statistics

from common.config import Scheduler as Settings
from common.messages import Failure
from scheduler.planning.policy import first_chunk
from scheduler.requests.request import Request
from scheduler.requests.waiting import WaitingQueue
from scheduler.workers.ar_worker import ArWorker, Sequence
from scheduler.workers.pool import LOOK_AHEAD_POSITIONS
from scheduler.workers.vocoder_worker import VocoderWorker

SILENT_SHARE = 0.6  # share of the deadline for which a request may have been silent
LISTENERS = 20  # with fewer listeners, the lowest buffer says little
QUANTILES = 20  # the lowest buffer is the first of this many quantiles
SETTLED_SECONDS = 2.0  # a listener counts once this much sound was delivered


def refusal(
    request: Request,
    waiting: WaitingQueue,
    ar_workers: list[ArWorker],
    vocoders: list[VocoderWorker],
    settings: Settings,
) -> Failure | None:
    """Reason for not queueing a request that has just arrived; None if it is queued."""
    positions, context = request.prompt_tokens, max(worker.context for worker in ar_workers)
    if positions + LOOK_AHEAD_POSITIONS >= context:
        message = f"text and references need {positions} of {context} positions"
        return Failure(400, "context_length_exceeded", message)
    if len(waiting) >= settings.max_waiting and waiting.gives_way(request) is None:
        return queue_full(len(waiting))
    judged = request.deadline is not None and settings.refuse_late
    if judged and too_late(request, request.arrived, waiting, ar_workers, vocoders, settings):
        return Failure(503, "overloaded", "the first sound can't be made in time", retry_after=1)
    return None


def queue_full(waiting: int) -> Failure:
    """The failure of a request for which the queue has no place."""
    return Failure(429, "queue_full", f"{waiting} requests are waiting already", retry_after=2)


def seconds_to_first_sound(
    request: Request,
    waiting: WaitingQueue,
    ar_workers: list[ArWorker],
    vocoders: list[VocoderWorker],
    settings: Settings,
) -> float:
    """Predict the time from now to the request's first sound."""
    worker = max(ar_workers, key=lambda candidate: candidate.slots.free)
    for_a_place = seconds_to_a_place(waiting, ar_workers)
    backlog = sum(_prompt_left(sequence) for candidate in ar_workers for sequence in candidate.sequences.values())
    backlog += sum(other.prompt_tokens for other in waiting)
    prompts = (backlog / len(ar_workers) + request.prompt_tokens) / settings.prefill_budget
    step = worker.step_cost.predict(len(worker.sequences) + 1, settings.prefill_budget)
    call = min((vocoder.call_seconds.value for vocoder in vocoders), default=0.0)
    step_seconds, frame_seconds = worker.step_seconds.value, worker.frame_seconds
    frames = first_chunk(step_seconds, call, frame_seconds, settings.min_chunk, settings.max_first_chunk)
    return for_a_place + math.ceil(prompts) * step + frames * step_seconds + 2 * call


def seconds_to_a_place(waiting: WaitingQueue, ar_workers: list[ArWorker]) -> float:
    """Lower bound of the time until a newcomer gets a slot, after all requests that are waiting already.

    Derived from the lengths of finished requests and the present cost of a full step; independent of past load.
    """
    ends = len(waiting) + 1 - sum(worker.slots.free for worker in ar_workers)
    if ends <= 0:
        return 0.0
    slots = sum(worker.slots.size for worker in ar_workers)
    return max(
        worker.lengths.at_least(ends) / slots * worker.step_cost.predict(worker.slots.size, 0) for worker in ar_workers
    )


def too_late(
    request: Request,
    now: float,
    waiting: WaitingQueue,
    ar_workers: list[ArWorker],
    vocoders: list[VocoderWorker],
    settings: Settings,
) -> bool:
    """Return whether the request, which has a deadline, should be refused."""
    assert request.deadline is not None, "only requests with a deadline can be late"
    limit = request.deadline - now
    served = [stream.request for vocoder in vocoders for stream in vocoder.streams.values() if stream.request.streaming]
    silent = [
        now - other.admitted_at
        for other in served
        if other.playback.play_end is None and other.deadline is not None and other.admitted_at is not None
    ]
    if max(silent, default=0.0) > SILENT_SHARE * limit or _queue_is_slow(waiting, now, limit, ar_workers):
        return True
    if _lowest_buffer(served, now, ar_workers[0].frame_seconds) < settings.guard_seconds:
        return True
    return seconds_to_first_sound(request, waiting, ar_workers, vocoders, settings) > limit


def _queue_is_slow(waiting: WaitingQueue, now: float, limit: float, ar_workers: list[ArWorker]) -> bool:
    """Return whether the oldest one has waited so long that a newcomer, with more in front of it, will be late.

    Places come in rounds, as many at a time as there are slots. Only while too little is known of lengths.
    """
    oldest = next(iter(waiting), None)
    if oldest is None or any(worker.lengths.known for worker in ar_workers):
        return False
    if oldest.deadline is None or now - oldest.arrived <= SILENT_SHARE * limit:
        return False
    slots = sum(worker.slots.size for worker in ar_workers)
    rounds, of_oldest = math.ceil((len(waiting) + 1) / slots), math.ceil((oldest.queued_behind + 1) / slots)
    return (now - oldest.arrived) * rounds / of_oldest > limit


def _prompt_left(sequence: Sequence) -> int:
    return 0 if sequence.request.resting else sequence.prompt_left


def _lowest_buffer(served: list[Request], now: float, frame_seconds: float) -> float:
    """Buffered seconds of the listeners that have least; infinite while there are few listeners."""
    settled = SETTLED_SECONDS / frame_seconds
    buffers = [
        other.playback.play_end - now
        for other in served
        if other.playback.play_end is not None and other.playback.delivered > settled and not other.generated
    ]
    if len(buffers) < LISTENERS:
        return math.inf
    return statistics.quantiles(buffers, n=QUANTILES, method="inclusive")[0]
