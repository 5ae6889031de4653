"""The scheduler's metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.messages import FinishReason
from common.metrics import BATCH_SIZES, FAST_SECONDS, WAIT_SECONDS
from scheduler.core import Scheduler
from scheduler.observer import Observer
from scheduler.pages import PagePool


class SchedulerMetrics(Observer):
    """Counts what the core tells, and shows its state when asked."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._queue_time = Histogram(
            "shoal_request_queue_time_seconds",
            "Time from a request's arrival at the scheduler to its admission",
            buckets=WAIT_SECONDS,
            registry=registry,
        )
        self._finished = Counter(
            "shoal_requests_finished_total", "Requests by finish reason", ["reason"], registry=registry
        )
        self._cache_queries = Counter(
            "shoal_prefix_cache_queries_total", "Prompt positions looked up in the prefix cache", registry=registry
        )
        self._cache_hits = Counter(
            "shoal_prefix_cache_hits_total", "Prompt positions found in the prefix cache", registry=registry
        )
        step_buckets = {"buckets": FAST_SECONDS, "registry": registry}
        size_buckets = {"buckets": BATCH_SIZES, "registry": registry}
        self._step = Histogram("shoal_step_seconds", "Device time of an AR step", **step_buckets)  # type: ignore[arg-type]
        self._step_rows = Histogram("shoal_step_batch_size", "Frames drawn in an AR step", **size_buckets)  # type: ignore[arg-type]
        self._prefill = Counter("shoal_prompt_tokens_total", "Prompt positions prefilled", registry=registry)
        self._frames = Counter("shoal_generation_frames_total", "Frames drawn by AR workers", registry=registry)
        self._call = Histogram("shoal_vocoder_call_seconds", "Device time of a vocoder call", **step_buckets)  # type: ignore[arg-type]
        self._call_size = Histogram("shoal_vocoder_batch_size", "Streams in a vocoder call", **size_buckets)  # type: ignore[arg-type]
        self._vocoded = Counter("shoal_vocoder_frames_total", "Frames turned into sound", registry=registry)

    def watch(self, core: Scheduler) -> None:
        """Export the state of the core."""
        running = Gauge("shoal_num_requests_running", "Requests admitted and not finished", registry=self._registry)
        running.set_function(lambda: len(core.requests))
        waiting = Gauge("shoal_num_requests_waiting", "Requests in the queue", registry=self._registry)
        waiting.set_function(lambda: len(core.waiting))
        pages = Gauge("shoal_kv_pages", "KV pages by state", ["state"], registry=self._registry)
        pages.labels("active").set_function(lambda: sum(pool.active for pool in _pools(core)))
        pages.labels("cached").set_function(lambda: sum(pool.cached for pool in _pools(core)))
        pages.labels("free").set_function(lambda: sum(pool.free for pool in _pools(core)))

        leaks = Gauge("shoal_leaked_resources", "Pages and slots held while idle; 0 otherwise", registry=self._registry)
        leaks.set_function(lambda: len(core.leaks()) if core.idle() else 0)

    def admitted(self, waited: float, prompt_tokens: int, cached_tokens: int) -> None:
        self._queue_time.observe(waited)
        self._cache_queries.inc(prompt_tokens)
        self._cache_hits.inc(cached_tokens)

    def ended(self, reason: FinishReason) -> None:
        self._finished.labels(reason).inc()

    def stepped(self, duration: float, rows: int, prefill_tokens: int) -> None:
        self._step.observe(duration)
        self._step_rows.observe(rows)
        self._prefill.inc(prefill_tokens)
        self._frames.inc(rows)

    def called(self, duration: float, streams: int, frames: int) -> None:
        self._call.observe(duration)
        self._call_size.observe(streams)
        self._vocoded.inc(frames)


def _pools(core: Scheduler) -> list[PagePool]:
    return [worker.pages for worker in list(core.ar_workers.values())]
