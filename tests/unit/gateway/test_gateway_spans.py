"""OpenTelemetry spans: made of timelines, in the caller's trace, and nothing of it where nobody asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from gateway_fakes import TESTS, Client, Player, fail, post, run, serving, speak
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry

from common import metrics, timeline
from common.messages import Failure
from common.timeline import RequestRecord, SchedulerRecords
from gateway.observe import otel_export
from gateway.observe.otel_spans import SpanMaker
from gateway.observe.timeline import Timeline

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def exporting(client: Client, exporter: InMemorySpanExporter | None = None) -> AbstractAsyncContextManager[None]:
    return otel_export.exporting(client.gateway.timelines, client.gateway.run_dir, exporter)


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    yield exporter
    exporter.shutdown()


def remembered(engine_request: str, since: float) -> SchedulerRecords:
    """A conversation of two engine requests, 20 ms apart."""
    records = []
    for part, name in enumerate((engine_request, f"{engine_request}.1")):
        begin = since + 0.02 * part
        at = [begin + n / 1000 for n in range(20)]
        record = RequestRecord(
            part + 1, name, at[1], 30, at[2], 16, "ar_worker", "vocoder_worker", at[3], at[8], at[12]
        )
        record.first_call, record.sounded, record.calls, record.frames, record.ended = at[9], at[14], 2, 3, at[14]
        records.append(record)
    return SchedulerRecords([*records, RequestRecord(9, "another", since, 5)], [], [])


def test_a_request_is_a_span_with_its_stages_in_the_caller_s_trace(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            recent: list[SchedulerRecords] = []
            pages = {timeline.PAGE: lambda parameters: timeline.encode(recent[0])}
            metrics.serve(CollectorRegistry(), tmp_path, "scheduler", pages)
            async with exporting(client, exporter):
                headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "mine"}
                async with client.post("/v1/tts", json={"text": "hello", "format": "pcm"}, headers=headers) as reply:
                    await reply.read()
                (seen,) = client.gateway.timelines
                recent.append(remembered(seen.engine_request, seen.received))

    run(test)
    found = exporter.get_finished_spans()
    (request,) = (span for span in found if span.name == "request")
    assert [span.name for span in found if span is not request] == ["queue", "prefill", "decode", "vocoder"] * 2
    assert {format(span.context.trace_id, "032x") for span in found} == {TRACE}
    assert format(request.parent.span_id, "016x") == PARENT
    assert request.kind is SpanKind.SERVER
    assert request.attributes["shoal.request_id"] == "mine"
    assert request.attributes["shoal.outcome"] == "stop"
    assert request.resource.attributes["service.name"] == "shoal"
    assert "hello" not in str([span.to_json() for span in found])
    check_stages(request, [span for span in found if span is not request])


def check_stages(request: ReadableSpan, stages: list[ReadableSpan]) -> None:
    for span in stages:
        assert span.parent.span_id == request.context.span_id
        assert request.start_time <= span.start_time <= span.end_time
    queue, prefill, decode, vocoder = stages[:4]
    assert queue.end_time == prefill.start_time
    assert prefill.end_time == decode.start_time
    assert (prefill.attributes["shoal.prompt_tokens"], prefill.attributes["shoal.cached_tokens"]) == (30, 16)
    assert (decode.attributes["shoal.frames"], vocoder.attributes["shoal.calls"]) == (3, 2)
    assert [event.name for event in decode.events] == ["first_audio"]
    assert not stages[6].events


def test_without_a_caller_logs_and_spans_name_the_same_new_trace(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            async with exporting(client, exporter):
                await post(client, text="hello", format="pcm")
                await post(client, text="hello", format="pcm")
            traces = {one.trace.trace_id for one in client.gateway.timelines}
        assert len(traces) == 2
        assert {format(span.context.trace_id, "032x") for span in exporter.get_finished_spans()} == traces
        assert all(span.parent is None for span in exporter.get_finished_spans())

    run(test)


def test_a_failure_is_an_error_and_a_client_that_left_is_none(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    begun = asyncio.Event()

    async def plan(player: Player) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async def test() -> None:
        async with (
            serving(tmp_path) as client,
            exporting(client, exporter),
        ):
            client.engine.plan = fail(0, Failure(503, "worker_lost", "lost"))
            await post(client, text="hello", format="pcm")
            client.engine.plan = plan
            speaking = asyncio.create_task(post(client, text="hello", format="pcm"))
            await begun.wait()
            speaking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await speaking
            async with asyncio.timeout(5):
                await client.gateway.idle.wait()

    run(test)
    failed, left = exporter.get_finished_spans()
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "worker_lost")
    assert (left.status.status_code, left.attributes["shoal.outcome"]) == (StatusCode.UNSET, "cancelled")


def test_spans_that_could_not_be_made_are_said_and_those_after_them_come(
    tmp_path: Path, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = asyncio.Event()
    make = SpanMaker.make

    def make_from_the_second_on(self: SpanMaker, timelines: Sequence[Timeline], recent: SchedulerRecords) -> None:
        if failed.is_set():
            make(self, timelines, recent)
        else:
            failed.set()
            raise ValueError("not this time")

    monkeypatch.setattr(otel_export, "INTERVAL", 0.01)
    monkeypatch.setattr(SpanMaker, "make", make_from_the_second_on)

    async def test() -> None:
        async with (
            serving(tmp_path) as client,
            exporting(client, exporter),
        ):
            await post(client, text="hello", format="pcm")
            async with asyncio.timeout(5):
                while not failed.is_set():  # noqa: ASYNC110 - set by a thread, which may not wake the loop
                    await asyncio.sleep(0.01)
            await post(client, text="hello", format="pcm")

    run(test)
    assert [span.name for span in exporter.get_finished_spans()] == ["request"]
    assert [record.levelname for record in caplog.records if record.name == "gateway.observe.otel_export"] == ["ERROR"]


def test_a_caller_that_does_not_sample_is_obeyed(tmp_path: Path, exporter: InMemorySpanExporter) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path) as client,
            exporting(client, exporter),
        ):
            client.engine.plan = speak(1)
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
            async with client.post("/v1/tts", json={"text": "hello", "format": "pcm"}, headers=headers) as reply:
                await reply.read()

    run(test)
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, False),
    ],
)
def test_opentelemetry_s_own_variables_say_whether_there_are_any(environment: dict[str, str], wanted: bool) -> None:
    assert otel_export.configured(environment) is wanted


def test_asked_for_and_not_installed_it_is_said_and_speech_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setitem(sys.modules, "gateway.observe.otel_spans", None)

    async def test() -> None:
        async with serving(tmp_path) as client, exporting(client):
            reply, _ = await post(client, text="hello", format="pcm")
            assert reply.status == 200

    run(test)
    (said,) = (record for record in caplog.records if record.name == "gateway.observe.otel_export")
    assert said.levelname == "ERROR"
    assert "otel" in said.getMessage()


def test_without_being_asked_nothing_of_it_is_imported() -> None:
    script = "import sys, gateway.__main__; print(any(name.startswith('opentelemetry') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=TESTS.parent, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
