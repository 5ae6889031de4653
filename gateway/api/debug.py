"""``/debug/*``: timelines of single requests and traces of the whole pipeline, without any text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from common.timeline import NOTHING, RequestRecord, SchedulerRecords
from gateway.http.errors import ApiError, invalid
from gateway.observe import scheduler_records
from gateway.observe.timeline import Timeline
from gateway.observe.trace import trace
from gateway.services import GATEWAY, Gateway

SECONDS = 10.0  # of a trace of everything, unless asked for more
MOST_SECONDS = 60.0

routes = web.RouteTableDef()


class Event(NamedTuple):
    at: float
    name: str
    facts: dict[str, Any]


@routes.get("/debug/requests")
async def requests(request: web.Request) -> web.Response:
    """List running and recently finished requests, newest first."""
    return web.json_response({"requests": [_summary(one) for one in request.app[GATEWAY].timelines]})


@routes.get("/debug/requests/{id}")
async def one_request(request: web.Request) -> web.Response:
    timeline, recent = await _look_up(request, work=False)
    answered, records = recent is not None, (recent or NOTHING).requests
    events = sorted([*_of_gateway(timeline), *_of_scheduler(records)], key=lambda event: event.at)
    told = [{"at": round(event.at - timeline.received, 6), "event": event.name} | event.facts for event in events]
    left_out = timeline.chunk_count - len(timeline.chunks)
    return web.json_response(
        _summary(timeline) | {"events": told, "chunks_left_out": left_out, "scheduler_answered": answered}
    )


@routes.get("/debug/requests/{id}/trace")
async def trace_of_one(request: web.Request) -> web.Response:
    timeline, recent = await _look_up(request, work=True)
    return await _trace([timeline], recent or NOTHING, timeline.wall)


@routes.get("/debug/trace")
async def trace_of_all(request: web.Request) -> web.Response:
    gateway, now = request.app[GATEWAY], time.monotonic()
    since = now - _seconds(request)
    recent = await scheduler_records.ask(gateway.run_dir, since, now, work=True)
    timelines = gateway.timelines.within(since, now)
    return await _trace(timelines[::-1], recent or NOTHING, time.time() - now)


async def _look_up(request: web.Request, work: bool) -> tuple[Timeline, SchedulerRecords | None]:
    """Return a request's timeline and the scheduler's records of it; None if the scheduler doesn't answer."""
    gateway: Gateway = request.app[GATEWAY]
    timeline = gateway.timelines.find(request.match_info["id"])
    if timeline is None:
        raise ApiError(404, "request_not_found", f"no such request among the last {gateway.timelines.most}")
    recent = await scheduler_records.ask(gateway.run_dir, timeline.received, timeline.until, work)
    if recent is None:
        return timeline, None
    return timeline, await asyncio.to_thread(
        scheduler_records.of_request, recent, timeline.engine_request
    )  # of many steps


async def _trace(timelines: list[Timeline], recent: SchedulerRecords, wall: float) -> web.Response:
    def encoded() -> bytes:
        return msgspec.json.encode(trace(timelines, recent, time.monotonic(), wall))

    body = await asyncio.to_thread(encoded)  # it may be long
    return web.Response(body=body, content_type="application/json")


def _seconds(request: web.Request) -> float:
    try:
        seconds = float(request.query.get("seconds", SECONDS))
    except ValueError:
        raise invalid("seconds", "is not a number") from None
    if not 0 < seconds <= MOST_SECONDS:
        raise invalid("seconds", f"is not above 0, to {MOST_SECONDS:g}")
    return seconds


def _summary(timeline: Timeline) -> dict[str, Any]:
    return {"received": round(timeline.received + timeline.wall, 6)} | timeline.summary()


def _of_gateway(timeline: Timeline) -> Iterator[Event]:
    yield Event(timeline.received, "received", {})
    if timeline.first_sound is not None:
        yield Event(timeline.first_sound, "first_sound", {})
    for chunk in timeline.chunks:
        sent = None if chunk.sent is None else round(chunk.sent - timeline.received, 6)
        yield Event(chunk.at, "chunk", chunk.facts() | {"seconds": round(chunk.seconds, 6), "sent": sent})
    if timeline.ended is not None:
        yield Event(timeline.ended, "end", {"reason": timeline.reason, "error": timeline.error})


def _of_scheduler(records: list[RequestRecord]) -> Iterator[Event]:
    """Yield the events of each engine request of the reply."""
    for record in records:
        part = {"engine_request": record.request}
        admitted = part | {"ar_worker": record.ar_worker, "vocoder_worker": record.vocoder_worker}
        generated = part | {"frames": record.frames, "reason": record.reason}
        times: list[tuple[float | None, str, dict[str, Any]]] = [
            (record.queued, "queued", part | {"prompt_tokens": record.prompt_tokens}),
            (record.admitted, "admitted", admitted | {"cached_tokens": record.cached_tokens}),
            (record.prefill, "prefill", part),
            (record.first_codes, "first_codes", part),
            (record.generated, "generated", generated),
            (record.ended, "engine_end", generated | {"calls": record.calls}),
        ]
        yield from (Event(at, name, facts) for at, name, facts in times if at is not None)
