"""Metrics of the gateway: requests, time to first audio, and how well streams keep their listeners supplied."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, TypeAlias, get_args

from prometheus_client import CollectorRegistry

from common.metrics import (
    FAST_SECONDS,
    HEARTBEAT_AGE,
    HEARTBEAT_AGE_HELP,
    QUEUE_MESSAGES,
    QUEUE_MESSAGES_HELP,
    WAIT_SECONDS,
    Families,
)
from gateway.engine.client import Engine

E2E_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 240.0, 600.0)
SPEECH_RATES = (2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 25.0, 30.0, 40.0, 80.0)
REAL_TIME_FACTORS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 5.0)

CancelCause: TypeAlias = Literal["disconnect", "superseded", "slow_client", "deadline"]
"""Why a request was given up: its client left, sent another instead, read nothing, or would have waited too long."""


class GatewayMetrics:
    """Metric families of the gateway in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.families = Families(registry)
        self._declare_requests(self.families)
        self._declare_sound(self.families)
        self._declare_voices(self.families)
        self._declare_keys(self.families)
        self._declare_state(self.families)

    def _declare_requests(self, families: Families) -> None:
        self.http_requests = families.counter(
            "shoal_http_requests_total", "HTTP requests answered, by route pattern.", "route", "method", "code"
        )
        self.requests = families.counter(
            "shoal_requests_total", "Speech requests, by how they ended.", "api", "format", "outcome"
        )
        self.in_flight = families.gauge("shoal_http_requests_in_flight", "Speech and voice requests under way.")
        self.client_disconnects = families.counter(
            "shoal_client_disconnects_total", "Speech requests whose client went away before the end."
        )
        cancels = families.counter(
            "shoal_cancels_total",
            "Speech requests given up: the client left (disconnect), sent another instead (superseded), read nothing "
            "for too long (slow_client), or would have waited too long for first audio (deadline).",
            "cause",
        )
        self.cancels = {cause: cancels.labels(cause) for cause in get_args(CancelCause)}
        self.live_refusals = families.counter(
            "shoal_live_refusals_total", "WebSockets and their utterances refused with 429 or 503.", "code"
        )
        self.input_characters = families.counter("shoal_input_characters_total", "Characters of text accepted.")
        self.e2e_latency = families.histogram(
            "shoal_e2e_request_latency_seconds", "From a speech request's arrival to its end.", E2E_SECONDS
        )

    def _declare_sound(self, families: Families) -> None:
        histogram = families.histogram
        self.audio_seconds = families.counter("shoal_audio_seconds_total", "Sound handed to clients.")
        self.audio_bytes = families.counter(
            "shoal_audio_bytes_total", "Bytes of sound handed to clients, headers left out."
        )
        self.not_finite = families.counter(
            "shoal_audio_not_finite_total", "Samples of the engine that were NaN or infinite, and became silence."
        )
        self.first_audio = histogram(
            "shoal_time_to_first_audio_seconds", "From a request's arrival to its first bytes of sound.", WAIT_SECONDS
        )
        self.chunk_gap = histogram(
            "shoal_audio_chunk_gap_seconds", "Between consecutive chunks of a stream.", FAST_SECONDS
        )
        self.chunk_lateness = histogram(
            "shoal_audio_chunk_lateness_seconds",
            "How long after the sound before it had run out a chunk of a stream came; 0: in time.",
            (0.0, *FAST_SECONDS),
        )
        self.underrun = histogram(
            "shoal_audio_underrun_seconds",
            "How long, in all, a listener who began at first audio would have stood still, per stream.",
            (0.0, *FAST_SECONDS),
        )
        self.real_time_factor = histogram(
            "shoal_real_time_factor_ratio",
            "Time a stream took per second of its sound, less what its client held it up; below 1: faster than heard.",
            REAL_TIME_FACTORS,
        )
        self.speech_rate = histogram(
            "shoal_speech_rate_characters_per_second",
            "Characters of text per second of sound, of whole replies: far above the usual, speech was cut short.",
            SPEECH_RATES,
        )

    def _declare_voices(self, families: Families) -> None:
        self.clip_queries = families.counter(
            "shoal_reference_cache_queries_total", "Recordings looked up among those encoded."
        )
        self.clip_hits = families.counter("shoal_reference_cache_hits_total", "Recordings found among those encoded.")
        self.clip_evictions = families.counter(
            "shoal_reference_cache_evictions_total", "Encoded recordings dropped to make room for others."
        )
        self.clip_bytes = families.gauge("shoal_reference_cache_bytes", "Codes of recordings kept.")
        self.voices = families.gauge("shoal_voices", "Voices of the library.")
        self.voice_bytes = families.gauge("shoal_voice_bytes", "Files of the voices of the library.")

    def _declare_keys(self, families: Families) -> None:
        counter = families.counter
        self.key_requests = counter("shoal_key_requests_total", "Requests admitted, by key.", "key")
        self.key_characters = counter("shoal_key_characters_total", "Characters of text accepted, by key.", "key")
        self.key_audio_seconds = counter("shoal_key_audio_seconds_total", "Sound made, by key.", "key")
        self.key_refusals = counter(
            "shoal_key_refusals_total", "Requests refused for the limits of their key.", "key", "limit"
        )

    def _declare_state(self, families: Families) -> None:
        self._ready = families.gauge("shoal_ready", "1 when every process of the group is ready, else 0.")
        self.connections = families.gauge("shoal_http_connections", "Connections that are open.")
        self._buffered = families.gauge(
            "shoal_buffered_bytes", "Bodies of requests, and replies that are not streamed.", "place"
        )
        self._sockets = families.gauge("shoal_websocket_connections", "WebSockets that are open.")
        self._ages = families.computed(HEARTBEAT_AGE, HEARTBEAT_AGE_HELP, "process")
        self._queues = families.computed(QUEUE_MESSAGES, QUEUE_MESSAGES_HELP, "link")

    def watch(self, engine: Engine, sockets: Collection[object]) -> None:
        """Export the state of the engine and the number of open sockets."""
        self._ready.set_function(lambda: not engine.unready())
        self._sockets.set_function(lambda: len(sockets))
        self._ages.values = engine.ages
        self._queues.values = engine.queues

    def watch_buffers(self, memory: Callable[[], float], disk: Callable[[], float]) -> None:
        """Export the bytes that are buffered for clients."""
        self._buffered.labels("memory").set_function(memory)
        self._buffered.labels("disk").set_function(disk)

    def cancelled(self, cause: CancelCause) -> None:
        """Count a cancelled speech request."""
        self.cancels[cause].inc()
        if cause == "disconnect":
            self.client_disconnects.inc()

    def count_sound(self, seconds: float, size: int) -> None:
        """Count sound that goes to a client."""
        self.audio_seconds.inc(seconds)
        self.audio_bytes.inc(size)


class Playback:
    """Playback buffer of a listener who starts at first audio. Times are in seconds of one clock."""

    def __init__(self, metrics: GatewayMetrics, arrival: float, rate: int) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._rate = rate
        self._last: float | None = None  # when the chunk before was ready
        self._supplied_until = 0.0
        self._underrun = 0.0
        self._sound = 0.0  # seconds, so far
        self._held_up = 0.0  # by the client, in all,
        self._held_up_before_last = 0.0  # and before the last chunk was ready

    def chunk(self, now: float, samples: int, size: int, rested: float = 0.0) -> float:
        """Count a chunk of ``samples`` and ``size`` bytes that is ready to be sent; returns its lateness in seconds.

        A chunk before which the stream ``rested`` that many seconds for want of text is neither late nor the end of a
        gap, and the rest does not count into the real-time factor.
        """
        seconds = samples / self._rate
        self._metrics.count_sound(seconds, size)
        late = 0.0
        if not samples:
            return late  # only what the encoder had kept back
        if self._last is None:
            self._metrics.first_audio.observe(now - self._arrival)
            self._supplied_until = now
        elif rested:
            self._supplied_until = max(self._supplied_until, now)
            self._held_up += rested
        else:
            late = max(0.0, now - self._supplied_until)
            self._metrics.chunk_gap.observe(now - self._last)
            self._metrics.chunk_lateness.observe(late)
            self._underrun += late
            self._supplied_until += late
        self._last = now
        self._supplied_until += seconds
        self._sound += seconds
        self._held_up_before_last = self._held_up
        return late

    def sent(self, seconds: float) -> None:
        """Count the seconds that the client took to accept a chunk."""
        self._held_up += seconds

    def ended(self, whole: bool) -> None:
        """Record the end of a stream; only a ``whole`` one has a real-time factor."""
        if self._last is None:
            return
        self._metrics.underrun.observe(self._underrun)
        if whole and self._sound:
            took = self._last - self._arrival - self._held_up_before_last
            self._metrics.real_time_factor.observe(took / self._sound)
