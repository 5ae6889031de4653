"""``/debug``: the timelines of requests, who may see them, and that they never hold what was said."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from gateway_fakes import HOP, RATE, Client, Player, fail, post, run, serving, speak
from prometheus_client import CollectorRegistry

from common import metrics, timeline
from common.messages import Failure
from common.timeline import CallItem, CallRecord, RequestRecord, SchedulerRecords, StepRecord
from gateway.observe import trace_context
from gateway.observe.timeline import MAX_CHUNKS
from gateway.observe.trace_context import TraceContext
from gateway.schema.replies import DebugRequest, DebugTimeline

SECRET = "Nobody else may read this sentence."
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def get(client: Client, path: str, status: int = 200, **headers: str) -> Any:
    async with client.get(path, headers=headers) as reply:
        assert reply.status == status
        return json.loads(await reply.read())


def test_a_request_leaves_its_timeline_by_either_id(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 2, 4)
            reply, body = await post(client, text=SECRET, format="pcm", sample_rate=RATE)
            told = await get(client, f"/debug/requests/{reply.headers['X-Request-Id']}")
            msgspec.convert(told, DebugTimeline)
            assert told == await get(client, f"/debug/requests/{told['engine_request']}")
            chunks = [event for event in told["events"] if event["event"] == "chunk"]
            assert [(chunk["first"], chunk["frames"]) for chunk in chunks] == [(0, 1), (1, 2), (3, 4)]
            assert sum(chunk["bytes"] for chunk in chunks) == len(body) == 2 * 7 * HOP
            assert [event["event"] for event in told["events"] if event["event"] != "chunk"] == [
                *("received", "first_sound", "end")
            ]
            times = [event["at"] for event in told["events"]]
            assert times == sorted(times)
            assert (told["frames"], told["chunks"], told["outcome"], told["chars"]) == (7, 3, "stop", len(SECRET))
            assert told["scheduler_answered"] is False
            assert SECRET.split()[0] not in json.dumps(told)

    run(test)


def test_the_list_is_bounded_newest_first_and_has_what_is_under_way(tmp_path: Path) -> None:
    async def test() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def plan(player: Player) -> None:
            player.give(1)
            begun.set()
            await go_on.wait()
            player.end()

        async with serving(tmp_path) as client:
            client.gateway.timelines = type(client.gateway.timelines)(2)
            for _ in range(3):
                await post(client, text="hello", format="pcm")
            client.engine.plan = plan
            speaking = asyncio.create_task(post(client, text="hello", format="pcm"))
            await begun.wait()
            listed = (await get(client, "/debug/requests"))["requests"]
            msgspec.convert(listed, list[DebugRequest])
            assert [one["outcome"] for one in listed] == [None, "stop", "stop"]
            received = [one["received"] for one in listed]
            tick = 0.001  # resolution of the event loop's clock
            assert all(newer > older - tick for newer, older in itertools.pairwise(received))
            assert abs(received[0] - time.time()) < 10
            go_on.set()
            await speaking

    run(test)


def test_one_timeline_is_bounded_and_says_what_it_left_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(*[1] * (MAX_CHUNKS + 5))
            reply, _ = await post(client, text="hello", format="pcm")
            told = await get(client, f"/debug/requests/{reply.headers['X-Request-Id']}")
            assert (told["frames"], told["chunks"], told["chunks_left_out"]) == (MAX_CHUNKS + 5, MAX_CHUNKS + 5, 5)
            assert len(told["events"]) == MAX_CHUNKS + 3

    run(test)


@pytest.mark.parametrize("frames", [0, 2])
def test_how_it_failed_is_told(tmp_path: Path, frames: int) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = fail(frames, Failure(503, "worker_lost", "lost"))
            try:
                await post(client, text="hello", format="pcm")
            except aiohttp.ClientError:
                assert frames
            (told,) = (await get(client, "/debug/requests"))["requests"]
            assert (told["outcome"], told["error"], told["frames"]) == ("error", "worker_lost", frames)

    run(test)


def test_an_utterance_on_a_socket_has_one_whose_clock_begins_with_its_text(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client, client.http.ws_connect("/v1/tts/live") as socket:
            wanted = {"text": "", "format": "pcm", "reference_id": None}
            await socket.send_bytes(msgspec.msgpack.encode({"event": "start", "request": wanted}))
            await asyncio.sleep(0.3)
            await socket.send_bytes(msgspec.msgpack.encode({"event": "text", "text": SECRET}))
            await socket.send_bytes(msgspec.msgpack.encode({"event": "stop"}))
            while msgspec.msgpack.decode((await socket.receive()).data)["event"] != "finish":
                pass
            (told,) = (await get(client, "/debug/requests"))["requests"]
            assert (told["api"], told["chars"], told["frames"]) == ("live", len(SECRET), 3)
            assert told["seconds"] >= 0.3
            assert told["ttfa_ms"] / 1000 <= told["seconds"] - 0.25  # the wait for the text is not in it

    run(test)


def test_where_there_are_keys_only_their_holders_may_look(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "anna"\nkey = "secret"\nscopes = ["admin"]\n')

    async def test() -> None:
        async with serving(tmp_path, api_keys_file=str(keys)) as client:
            for path in ("/debug/requests", "/debug/requests/x", "/debug/requests/x/trace", "/debug/trace"):
                assert (await get(client, path, 401))["error"]["code"] == "invalid_api_key"
            await get(client, "/debug/requests", Authorization="Bearer secret")
            await get(client, "/debug/requests/x", 404, Authorization="Bearer secret")
            client.gateway.draining = client.gateway.refusing = True
            await get(client, "/debug/requests", Authorization="Bearer secret")

    run(test)


@pytest.mark.parametrize("seconds", ["0", "61", "-1", "soon", "nan"])
def test_a_span_of_time_that_makes_no_sense_is_refused(tmp_path: Path, seconds: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            refused = await get(client, f"/debug/trace?seconds={seconds}", 400)
            assert refused["error"]["param"] == "seconds"

    run(test)


def test_a_trace_has_the_scheduler_and_the_workers_of_the_request_and_no_other(tmp_path: Path) -> None:
    recent: list[SchedulerRecords] = []

    async def test() -> None:
        async with serving(tmp_path) as client:
            pages = {timeline.PAGE: lambda parameters: timeline.encode(recent[0])}
            metrics.serve(CollectorRegistry(), tmp_path, "scheduler", pages)
            reply, _ = await post(client, text="hello", format="pcm")
            name = reply.headers["X-Request-Id"]
            (seen,) = client.gateway.timelines
            recent.append(remembered(seen.engine_request, seen.received))
            one = await get(client, f"/debug/requests/{name}/trace")
            everything = await get(client, "/debug/trace?seconds=5")
            told = await get(client, f"/debug/requests/{name}")
        assert told["scheduler_answered"] is True
        order = ["received", "queued", "admitted", "prefill", "first_codes", "generated", "engine_end"]
        assert [event["event"] for event in told["events"] if event["event"] in order] == order
        assert {worker: names(one, worker) for worker in ("ar_worker", "vocoder_worker")} == {
            "ar_worker": ["prefill", "step"],
            "vocoder_worker": ["call"],
        }
        assert names(one, "scheduler") == ["queue", "prefill", "decode", "vocoder"]
        assert len(names(everything, "ar_worker")) == 3
        assert len(names(everything, "scheduler")) == 8

    run(test)


def remembered(engine_request: str, since: float) -> SchedulerRecords:
    """The request took 40 ms; another one was in the steps before and after."""
    at = [since + n / 1000 for n in range(50)]
    mine, other = (
        RequestRecord(
            n, request, at[1], 5, at[2], 0, "ar_worker", "vocoder_worker", at[3], at[8], at[30], at[9], at[40]
        )
        for n, request in ((1, engine_request), (2, "another"))
    )
    for record in (mine, other):
        record.ended = at[40]
    steps = [
        StepRecord("ar_worker", 1, at[3], at[8], 0.004, 5, [1], [1]),
        StepRecord("ar_worker", 2, at[8], at[12], 0.004, 0, [1, 2], []),
        StepRecord("ar_worker", 3, at[12], at[16], 0.004, 0, [2], []),
    ]
    calls = [CallRecord("vocoder_worker", 1, at[9], at[14], 0.003, [CallItem(1, 0, 1)])]
    return SchedulerRecords([mine, other], steps, calls)


def names(trace: dict[str, Any], process: str) -> list[str]:
    """Names of the slices of a process."""
    events = trace["traceEvents"]
    (pid,) = [event["pid"] for event in events if event["name"] == "process_name" and event["args"]["name"] == process]
    return [event["name"] for event in events if event["pid"] == pid and event["ph"] == "X"]


@pytest.mark.parametrize(
    ("header", "parent", "flags"),
    [
        (TRACEPARENT, "b7ad6b7169203331", 1),
        (TRACEPARENT.replace("00-", "cc-", 1) + "-later", "b7ad6b7169203331", 1),
        (TRACEPARENT + "-later", "", 0),
        (TRACEPARENT.replace("00-", "ff-", 1), "", 0),
        (TRACEPARENT.upper(), "", 0),
        (TRACEPARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), "", 0),
        (TRACEPARENT.replace("b7ad6b7169203331", "0" * 16), "", 0),
        ("", "", 0),
    ],
)
def test_the_caller_s_trace_is_taken_where_it_makes_sense(header: str, parent: str, flags: int) -> None:
    context = trace_context.of_header(header)
    assert (context.parent, context.flags) == (parent, flags)
    if parent:
        assert context == TraceContext("0af7651916cd43dd8448eb211c80319c", parent, flags)
    else:
        assert context.trace_id not in ("0" * 32, "0af7651916cd43dd8448eb211c80319c")
        assert len(bytes.fromhex(context.trace_id)) == 16


def test_each_request_has_one_line_in_the_log_without_its_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            headers = {"traceparent": TRACEPARENT, "X-Request-Id": "mine"}
            async with client.post("/v1/tts", json={"text": SECRET, "format": "pcm"}, headers=headers) as reply:
                await reply.read()
            await post(client, text="")

    with caplog.at_level(logging.INFO):
        run(test)
    spoken, refused = (vars(record) for record in caplog.records if record.name.startswith("gateway"))
    assert spoken["msg"] == "spoken"
    assert (spoken["request_id"], spoken["trace_id"]) == ("mine", TRACEPARENT[3:35])
    for name in ("model", "voice_hash", "chars", "ttfa_ms", "audio_s", "rtf", "outcome"):
        assert name in spoken
    assert spoken["rtf"] == pytest.approx(spoken["seconds"] / spoken["audio_s"], abs=0.001)  # both are rounded
    assert (refused["msg"], refused["code"]) == ("answered", "400")
    assert SECRET not in caplog.text
