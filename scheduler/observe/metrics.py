"""Metrics of the scheduler: counts events of the core, and reads its state when scraped."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from prometheus_client import CollectorRegistry

from common.messages import FinishReason
from common.metrics import (
    BATCH_SIZES,
    FAST_SECONDS,
    HEARTBEAT_AGE,
    HEARTBEAT_AGE_HELP,
    QUEUE_MESSAGES,
    QUEUE_MESSAGES_HELP,
    WAIT_SECONDS,
    Families,
    Values,
)
from scheduler.core import Scheduler
from scheduler.observer import Observer, Stage
from scheduler.requests.request import Request
from scheduler.resources.pages import PagePool
from scheduler.resources.slots import SlotPool
from scheduler.workers.ar_worker import ArWorker, Step
from scheduler.workers.vocoder_worker import Call, VocoderWorker


class SchedulerMetrics(Observer):
    """Declares the families in ``registry``; :meth:`watch` adds those that read the core's state."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.families = Families(registry)
        self._declare_requests(self.families)
        self._declare_workers(self.families)
        self._declare_state(self.families)

    def _declare_requests(self, families: Families) -> None:
        counter, histogram = families.counter, families.histogram
        self._queue_time = histogram(
            "shoal_request_queue_time_seconds",
            "From a request's arrival at the scheduler to its admission.",
            WAIT_SECONDS,
        )
        self._prefill_time = histogram(
            "shoal_request_prefill_time_seconds",
            "From a request's admission to its first frame of codes.",
            WAIT_SECONDS,
        )
        finished = counter("shoal_requests_finished_total", "Requests of the engine, by how they ended.", "reason")
        self._finished = {reason: finished.labels(reason) for reason in get_args(FinishReason)}
        self._stalls = counter(
            "shoal_credit_stalls_total", "Times that codes had to wait for a client to read the sound before them."
        )
        self._recoveries = counter(
            "shoal_recoveries_total", "Times that a request went on with another worker after the loss of its own."
        )
        remade = counter(
            "shoal_remade_frames_total",
            "Frames that are prefilled (ar) or decoded (vocoder) again, since a fault lost what was made of them.",
            "stage",
        )
        self._remade = {stage: remade.labels(stage) for stage in get_args(Stage)}
        self._stood_still = histogram(
            "shoal_fault_underrun_seconds",
            "Time for which a listener had nothing to play because of a fault, for each time that it happened.",
            WAIT_SECONDS,
        )
        self._cache_queries = counter(
            "shoal_prefix_cache_queries_total", "Prompt positions looked up in the prefix cache."
        )
        self._cache_hits = counter("shoal_prefix_cache_hits_total", "Prompt positions found in the prefix cache.")

    def _declare_workers(self, families: Families) -> None:
        counter, histogram = families.counter, families.histogram
        step = histogram(
            "shoal_step_seconds",
            "Device time of an AR step; prefill: with prompt positions in it, decode: without.",
            FAST_SECONDS,
            "phase",
        )
        self._prefill_step, self._decode_step = step.labels("prefill"), step.labels("decode")
        self._step_rows = histogram("shoal_step_batch_size", "Frames drawn in an AR step.", BATCH_SIZES)
        self._prefill = counter("shoal_prompt_tokens_total", "Prompt positions prefilled.")
        self._frames = counter("shoal_generation_frames_total", "Frames drawn by AR workers.")
        self._call = histogram("shoal_vocoder_call_seconds", "Device time of a vocoder call.", FAST_SECONDS)
        self._call_size = histogram("shoal_vocoder_batch_size", "Streams in a vocoder call.", BATCH_SIZES)
        self._vocoded = counter("shoal_vocoder_frames_total", "Frames turned into sound.")

    def _declare_state(self, families: Families) -> None:
        gauge, computed = families.gauge, families.computed
        self._running = gauge("shoal_num_requests_running", "Requests admitted and not finished.")
        self._waiting = gauge("shoal_num_requests_waiting", "Requests in the queue.")
        self._clips = gauge("shoal_reference_encodes_waiting", "Recordings that wait to be encoded.")
        self._leaks = gauge("shoal_leaked_resources", "Kinds of pages and slots held while idle; 0 in good order.")
        self._usage = gauge("shoal_kv_cache_usage_ratio", "Share of the KV pages that sequences have.")
        self._pages = computed("shoal_kv_pages", "KV pages by state.", "state")
        self._ar_slots = computed("shoal_ar_slots", "Slots for sequences, by state.", "state")
        self._vocoder_slots = computed("shoal_vocoder_slots", "Slots for streams of sound, by state.", "state")
        self._ages = computed(HEARTBEAT_AGE, HEARTBEAT_AGE_HELP, "process")
        self._queues = computed(QUEUE_MESSAGES, QUEUE_MESSAGES_HELP, "link")

    def watch(self, core: Scheduler, ages: Values, received: Callable[[], int]) -> None:
        """Export the core's state. ``ages``: seconds since each peer was heard; ``received``: messages last read."""
        self._running.set_function(lambda: len(core.requests))
        self._waiting.set_function(lambda: len(core.waiting))
        self._clips.set_function(lambda: len(core.clips))
        self._leaks.set_function(lambda: len(core.leaks()) if core.idle() else 0)
        self._usage.set_function(lambda: _usage(_pools(core)))
        self._pages.values = lambda: _pages(_pools(core))
        self._ar_slots.values = lambda: _slots([worker.slots for worker in list(core.ar_workers.values())])
        self._vocoder_slots.values = lambda: _slots([worker.slots for worker in list(core.vocoders.values())])
        self._ages.values = ages
        self._queues.values = lambda: {"from_peers": received()}

    def admitted(self, request: Request, worker: str, vocoder: str, cached_tokens: int, now: float) -> None:
        self._queue_time.observe(now - request.arrived)
        self._cache_queries.inc(request.prompt_tokens)
        self._cache_hits.inc(cached_tokens)

    def prefilled(self, request: Request, now: float) -> None:
        assert request.admitted_at is not None, "only admitted requests are prefilled"
        self._prefill_time.observe(now - request.admitted_at)

    def stalled(self, request: Request) -> None:
        self._stalls.inc()

    def recovered(self, request: Request) -> None:
        self._recoveries.inc()

    def remade(self, request: Request, stage: Stage, frames: int) -> None:
        self._remade[stage].inc(frames)

    def stood_still(self, request: Request, seconds: float) -> None:
        self._stood_still.observe(seconds)

    def refused(self, request: Request) -> None:
        self._finished["rejected"].inc()

    def ended(self, request: Request) -> None:
        assert request.reason is not None, "a request ends for a reason"
        self._finished[request.reason].inc()

    def stepped(self, worker: ArWorker, step: Step, seconds: float, now: float) -> None:
        (self._prefill_step if step.prompt_tokens else self._decode_step).observe(seconds)
        self._step_rows.observe(len(step.rows))
        self._prefill.inc(step.prompt_tokens)
        self._frames.inc(len(step.rows))

    def called(self, worker: VocoderWorker, call: Call, seconds: float, now: float) -> None:
        self._call.observe(seconds)
        self._call_size.observe(len(call.items))
        self._vocoded.inc(call.frames)


def _pools(core: Scheduler) -> list[PagePool]:
    return [worker.pages for worker in list(core.ar_workers.values())]


def _pages(pools: list[PagePool]) -> dict[str, float]:
    return {
        "active": sum(pool.active for pool in pools),
        "cached": sum(pool.cached for pool in pools),
        "free": sum(pool.free for pool in pools),
    }


def _usage(pools: list[PagePool]) -> float:
    size = sum(pool.size for pool in pools)
    return sum(pool.active for pool in pools) / size if size else 0.0


def _slots(pools: list[SlotPool]) -> dict[str, float]:
    free = sum(pool.free for pool in pools)
    return {"used": sum(pool.size for pool in pools) - free, "free": free}
