"""Seeing one request: timelines, traces, spans and log lines of a running group."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import msgspec
import pytest

from tests.integration.client import Reply, gather, post, speak
from tests.integration.group import PROGRAMS, ROOT, Group, costs, eventually, running

SECRET = "Nightingales whisper confidential arithmetic."
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FRAMES = 60


class Collector:
    """Takes OTLP's JSON, as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for resource in json.loads(body)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                self.spans += scope["spans"]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


@pytest.fixture(scope="module")
def group(collector: Collector) -> Iterator[Group]:
    """Steps of 5 ms, and spans that go to the collector."""
    asked = mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address})
    with asked, running(*costs(step_ms=5.0)) as group:
        yield group


@pytest.fixture(scope="module")
def replies(group: Group) -> list[Reply]:
    """Of four requests at once; the first belongs to a caller's trace."""

    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "of-a-caller"}
    fields = {"text": SECRET, "format": "pcm", "max_new_tokens": FRAMES}
    traced = post(group.base, "/v1/tts", fields, headers=headers)
    others = [speak(group.base, f"{SECRET} {n}", max_new_tokens=FRAMES) for n in range(3)]
    return gather(traced, *others)


def get(group: Group, path: str) -> Any:
    with urllib.request.urlopen(group.base + path, timeout=10) as reply:
        return json.load(reply)


def slices(trace: dict[str, Any], process: str) -> list[dict[str, Any]]:
    named = [event for event in trace["traceEvents"] if event["name"] == "process_name"]
    (pid,) = [event["pid"] for event in named if event["args"]["name"] == process]
    return [event for event in trace["traceEvents"] if event["pid"] == pid and event["ph"] == "X"]


def test_a_timeline_tells_every_stage_and_every_chunk_in_order(group: Group, replies: list[Reply]) -> None:
    for reply in replies:
        told = get(group, f"/debug/requests/{reply.headers['X-Request-Id']}")
        events = told["events"]
        names = [event["event"] for event in events]
        order = ("received", "queued", "admitted", "prefill", "first_codes", "first_sound", "end")
        assert [name for name in names if name in order] == list(order)
        assert [event["at"] for event in events] == sorted(event["at"] for event in events)
        chunks = [event for event in events if event["event"] == "chunk"]
        ends = list(itertools.accumulate(chunk["frames"] for chunk in chunks))
        assert [chunk["first"] for chunk in chunks] == [0, *ends[:-1]]
        assert ends[-1] == told["frames"] == FRAMES
        assert sum(chunk["bytes"] for chunk in chunks) == len(reply.body)
        assert all(chunk["sent"] >= chunk["at"] and chunk["late_ms"] >= 0 for chunk in chunks)
        end = events[names.index("end")]  # the scheduler may hear of the last call after the client has its sound
        assert (end["reason"], told["outcome"]) == ("length", "length")
        assert set(names[names.index("end") + 1 :]) <= {"engine_end"}
    assert len(get(group, "/debug/requests")["requests"]) >= len(replies)


def test_a_trace_shows_the_steps_and_calls_of_the_request(group: Group, replies: list[Reply]) -> None:
    trace = get(group, f"/debug/requests/{replies[0].headers['X-Request-Id']}/trace")
    check_form(trace)
    assert [one["name"] for one in slices(trace, "scheduler")] == ["queue", "prefill", "decode", "vocoder"]
    number = slices(trace, "scheduler")[0]["args"]["number"]
    steps, calls = slices(trace, "ar_worker"), slices(trace, "vocoder_worker")
    assert FRAMES <= sum(number in step["args"]["requests"] for step in steps) <= FRAMES + 2
    assert [step["name"] for step in steps].count("prefill") >= 1
    items = [item for call in calls for item in call["args"]["items"] if item["request"] == number]
    assert [item["first"] for item in items] == [0, *itertools.accumulate(item["frames"] for item in items)][:-1]
    assert sum(item["frames"] for item in items) == FRAMES
    chunks = [one for one in slices(trace, "gateway") if one["name"] == "chunk"]
    assert sum(chunk["args"]["frames"] for chunk in chunks) == FRAMES
    # One clock: no chunk leaves the gateway before its call has begun, none of its frames is spoken before it is drawn.
    assert calls[0]["ts"] >= steps[0]["ts"] + steps[0]["dur"]
    assert all(chunk["ts"] >= call["ts"] for chunk, call in zip(chunks, calls, strict=False))


def check_form(trace: dict[str, Any]) -> None:
    events = trace["traceEvents"]
    for event in events:
        assert {"ph", "ts", "pid", "tid", "name"} <= event.keys()
        assert event["ph"] in ("X", "M")
        assert event["ph"] == "M" or event["dur"] >= 0
    named = {event["pid"] for event in events if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert {event["pid"] for event in events} == named
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} == threads
    for pid, tid in threads:  # what is on one track is nested or apart
        track = [event for event in events if (event["pid"], event["tid"], event["ph"]) == (pid, tid, "X")]
        open_until: list[float] = []
        for event in sorted(track, key=lambda event: (event["ts"], -event["dur"])):
            while open_until and open_until[-1] <= event["ts"] + 0.2:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1] + 0.2, event
            open_until.append(event["ts"] + event["dur"])


def test_the_last_seconds_of_everything_are_one_trace_and_a_file(
    group: Group, replies: list[Reply], tmp_path: Path
) -> None:
    file = tmp_path / "all.json"
    command = [sys.executable, "-m", "deploy.cli", "trace", "--seconds", "60", "-o", str(file), "--server", group.base]
    subprocess.run(command, cwd=ROOT, timeout=60, check=True)
    trace = json.loads(file.read_text())
    check_form(trace)
    requests = [one["args"]["request_id"] for one in slices(trace, "gateway") if one["name"] == "request"]
    assert {reply.headers["X-Request-Id"] for reply in replies} <= set(requests)
    numbers = {one["args"]["number"] for one in slices(trace, "scheduler") if one["name"] == "queue"}
    drawn = [step["args"]["requests"] for step in slices(trace, "ar_worker")]
    assert {number for step in drawn for number in step} == numbers
    assert max(map(len, drawn)) >= 2


def test_spans_reach_a_collector(group: Group, replies: list[Reply], collector: Collector) -> None:
    eventually(lambda: sum(span["name"] == "request" for span in collector.spans) >= len(replies))
    mine = [span for span in collector.spans if span["traceId"] == TRACE]
    assert sorted(span["name"] for span in mine) == ["decode", "prefill", "queue", "request", "vocoder"]
    (request,) = [span for span in mine if span["name"] == "request"]
    assert request["parentSpanId"] == PARENT
    assert all(span["parentSpanId"] == request["spanId"] for span in mine if span is not request)
    (decode,) = [span for span in mine if span["name"] == "decode"]
    assert [event["name"] for event in decode["events"]] == ["first_audio"]
    assert not any(word in json.dumps(collector.spans) for word in SECRET.split())


def test_logs_are_json_with_one_line_per_request_and_never_its_text(group: Group, replies: list[Reply]) -> None:
    async def live() -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{group.base}/v1/tts/live") as socket:
            wanted = {"text": SECRET, "format": "pcm", "max_new_tokens": 5}
            for event in ({"event": "start", "request": wanted}, {"event": "stop"}):
                await socket.send_bytes(msgspec.msgpack.encode(event))
            while msgspec.msgpack.decode((await socket.receive(10)).data)["event"] != "finish":
                pass

    asyncio.run(live())
    gather(speak(group.base, SECRET, reference_id="nobody"))
    gather(speak(group.base, SECRET, max_new_tokens=FRAMES, stop_after=100))
    eventually(group.idle)
    logs = [(group.run_dir / f"{program}.log").read_text() for program in PROGRAMS]
    lines = [json.loads(line) for log in logs for line in log.splitlines()]
    assert {line["process"] for line in lines} == set(PROGRAMS)
    assert all({"ts", "level", "process", "logger", "msg"} <= line.keys() for line in lines)
    assert not any(word in json.dumps(lines) for word in SECRET.split())
    spoken = {line["request_id"]: line for line in lines if line["msg"] == "spoken"}
    for reply in replies:
        line = spoken[reply.headers["X-Request-Id"]]
        assert (line["outcome"], line["frames"], line["model"]) == ("length", FRAMES, "mini")
        assert line["ttfa_ms"] > 0
        assert line["rtf"] == pytest.approx(line["seconds"] / line["audio_s"], rel=0.01)
    assert spoken["of-a-caller"]["trace_id"] == TRACE
    outcomes = [line["outcome"] for line in lines if line["msg"] == "spoken"]
    assert outcomes.count("cancelled") == 1
