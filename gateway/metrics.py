"""What the gateway measures: requests, time to first audio, and how well each stream keeps its listener supplied."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.metrics import FAST_SECONDS, WAIT_SECONDS

E2E_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 240.0, 600.0)


class GatewayMetrics:
    """The metric families of the gateway, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, buckets=buckets, registry=registry)

        self.http_requests = counter(
            "shoal_http_requests_total", "HTTP requests answered, by route pattern.", "route", "method", "code"
        )
        self.requests = counter(
            "shoal_requests_total", "Speech requests, by how they ended.", "api", "format", "outcome"
        )
        self.in_flight = Gauge(
            "shoal_http_requests_in_flight", "Speech and voice requests under way.", registry=registry
        )
        self.client_disconnects = counter(
            "shoal_client_disconnects_total", "Speech requests whose client went away before the end."
        )
        self.clip_queries = counter("shoal_reference_cache_queries_total", "Recordings looked up among those encoded.")
        self.clip_hits = counter("shoal_reference_cache_hits_total", "Recordings found among those encoded.")
        self.clip_bytes = Gauge("shoal_reference_cache_bytes", "Codes of recordings kept.", registry=registry)
        self.voices = Gauge("shoal_voices", "Voices of the library.", registry=registry)
        self.voice_bytes = Gauge("shoal_voice_bytes", "Files of the voices of the library.", registry=registry)
        self.key_requests = counter("shoal_key_requests_total", "Requests admitted, by key.", "key")
        self.key_characters = counter("shoal_key_characters_total", "Characters of text accepted, by key.", "key")
        self.key_audio_seconds = counter("shoal_key_audio_seconds_total", "Sound made, by key.", "key")
        self.key_refusals = counter(
            "shoal_key_refusals_total", "Requests refused for the limits of their key.", "key", "limit"
        )
        self.input_characters = counter("shoal_input_characters_total", "Characters of text accepted.")
        self.audio_seconds = counter("shoal_audio_seconds_total", "Sound handed to clients.")
        self.audio_bytes = counter("shoal_audio_bytes_total", "Bytes of sound handed to clients, headers left out.")
        self.not_finite = counter(
            "shoal_audio_not_finite_total", "Samples of the engine that were NaN or infinite, and became silence."
        )
        self.first_audio = histogram(
            "shoal_time_to_first_audio_seconds", "From a request's arrival to its first bytes of sound.", WAIT_SECONDS
        )
        self.e2e_latency = histogram(
            "shoal_e2e_request_latency_seconds", "From a speech request's arrival to its end.", E2E_SECONDS
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

    def count_sound(self, seconds: float, size: int) -> None:
        """Sound goes to a client: so many seconds, in so many bytes."""
        self.audio_seconds.inc(seconds)
        self.audio_bytes.inc(size)


class Playback:
    """The clock of a listener who starts to play at first audio. Times in seconds, of one clock."""

    def __init__(self, metrics: GatewayMetrics, arrival: float, rate: int) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._rate = rate
        self._last: float | None = None  # when the chunk before was ready
        self._supplied_until = 0.0
        self._underrun = 0.0

    def chunk(self, now: float, samples: int, size: int) -> None:
        """A chunk of ``samples``, ``size`` bytes long, is ready to be sent."""
        seconds = samples / self._rate
        self._metrics.count_sound(seconds, size)
        if not samples:
            return  # only what the encoder had kept back
        if self._last is None:
            self._metrics.first_audio.observe(now - self._arrival)
            self._supplied_until = now
        else:
            late = max(0.0, now - self._supplied_until)
            self._metrics.chunk_gap.observe(now - self._last)
            self._metrics.chunk_lateness.observe(late)
            self._underrun += late
            self._supplied_until += late
        self._last = now
        self._supplied_until += seconds

    def ended(self) -> None:
        if self._last is not None:
            self._metrics.underrun.observe(self._underrun)
