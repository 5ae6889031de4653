"""OpenTelemetry spans of a timeline: the request and the stages of its engine requests. Imports the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from common.timeline import RequestRecord, SchedulerRecords
from common.version import VERSION
from gateway.observe import scheduler_records
from gateway.observe.timeline import Timeline

GOOD_ENDS = ("stop", "length", "cancelled")  # the last is the client's


class Ids(RandomIdGenerator):
    """Id generator that gives a root span the trace id already used in logs."""

    trace_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id


class Clock:
    """Converts times of the monotonic clock to nanoseconds since 1970."""

    def __init__(self, wall: float) -> None:
        self._wall = wall

    def at(self, time: float) -> int:
        return int((time + self._wall) * 1e9)


class SpanMaker:
    """Makes spans for an exporter, by default OTLP's, which reads its own environment variables."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        self._ids = Ids()
        self._provider = TracerProvider(resource=_resource(), id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("shoal", VERSION)

    def make(self, timelines: Sequence[Timeline], recent: SchedulerRecords) -> None:
        """Make the spans of finished requests. Use one thread at a time."""
        for timeline in timelines:
            self._make(timeline, scheduler_records.of_request(recent, timeline.engine_request).requests)

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()

    def _make(self, timeline: Timeline, records: list[RequestRecord]) -> None:
        self._ids.trace_id = int(timeline.trace.trace_id, 16)
        facts = {f"shoal.{key}": value for key, value in timeline.summary().items() if value is not None}
        clock = Clock(timeline.wall)
        root = self._tracer.start_span(
            "request", _caller(timeline), SpanKind.SERVER, facts, start_time=clock.at(timeline.received)
        )
        if timeline.reason not in GOOD_ENDS:
            root.set_status(Status(StatusCode.ERROR, timeline.error or timeline.reason))
        if root.is_recording():
            for index, record in enumerate(records):
                self._stages(api.set_span_in_context(root), clock, record, None if index else timeline.first_sound)
        root.end(clock.at(timeline.until))

    def _stages(self, context: Context, clock: Clock, record: RequestRecord, first_audio: float | None) -> None:
        """``first_audio``: when the first sound was ready, if it is of this engine request."""
        until = record.queued if record.ended is None else record.ended
        facts = {"shoal.engine_request": record.request}
        for stage in scheduler_records.stages(record, until):
            span = self._span(stage.name, context, clock.at(stage.begin), facts)
            if stage.name == "prefill":
                span.set_attribute("shoal.prompt_tokens", record.prompt_tokens)
                span.set_attribute("shoal.cached_tokens", record.cached_tokens)
            elif stage.name == "decode":
                span.set_attribute("shoal.frames", record.frames)
                if first_audio is not None:
                    span.add_event("first_audio", timestamp=clock.at(first_audio))
            span.end(clock.at(max(stage.begin, stage.end)))
        if record.first_call is not None and record.sounded is not None:
            span = self._span("vocoder", context, clock.at(record.first_call), facts | {"shoal.calls": record.calls})
            span.end(clock.at(record.sounded))

    def _span(self, name: str, context: Context, start: int, facts: Mapping[str, str | int]) -> Span:
        return self._tracer.start_span(name, context, attributes=facts, start_time=start)


def _caller(timeline: Timeline) -> Context:
    """Return the context with the caller's span, if any."""
    trace = timeline.trace
    if not trace.parent:
        return Context()
    span = SpanContext(
        int(trace.trace_id, 16), int(trace.parent, 16), is_remote=True, trace_flags=TraceFlags(trace.flags)
    )
    return api.set_span_in_context(NonRecordingSpan(span), Context())


def _resource() -> Resource:
    """Return the resource of the environment, with the service name shoal by default."""
    resource = Resource.create()
    unnamed = str(resource.attributes[SERVICE_NAME]).startswith("unknown_service")
    return resource.merge(Resource({SERVICE_NAME: "shoal"})) if unnamed else resource
