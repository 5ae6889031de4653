"""Traces of the whole pipeline in Chrome's JSON format, for Perfetto and ``chrome://tracing``.

One track per request in the gateway and two in the scheduler, one per worker. Times are microseconds of the gateway's
monotonic clock, which is the scheduler's too; workers are seen through the scheduler, so theirs are on it as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from common.timeline import CallRecord, RequestRecord, SchedulerRecords, StepRecord
from gateway.observe.scheduler_records import stages
from gateway.observe.timeline import Timeline

Event: TypeAlias = dict[str, Any]

GATEWAY, SCHEDULER, FIRST_WORKER = 1, 2, 3  # process ids in the trace
WORK = 1  # thread id of a worker's track


def trace(timelines: Sequence[Timeline], recent: SchedulerRecords, now: float, wall: float) -> dict[str, Any]:
    """Build a trace. ``now``: end of unfinished events; ``wall``: offset of the times to seconds since 1970."""
    events: list[Event] = [_name(GATEWAY, "gateway"), _name(SCHEDULER, "scheduler")]
    for tid, timeline in enumerate(timelines, start=1):
        events += [_name(GATEWAY, timeline.request_id, tid), *_of_timeline(timeline, tid, now)]
    for index, record in enumerate(recent.requests):
        events += _of_record(record, 2 * index + 1, now)
    events += _of_workers(recent)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"clock": "monotonic, of the gateway's machine", "unix_seconds_at_zero": round(wall, 6)},
    }


def _of_timeline(timeline: Timeline, tid: int, now: float) -> Iterator[Event]:
    end = now if timeline.ended is None else timeline.ended
    yield _slice(GATEWAY, tid, "request", timeline.received, end, timeline.summary())
    yield _slice(GATEWAY, tid, "to first sound", timeline.received, timeline.first_sound or end, {})
    for chunk in timeline.chunks:
        yield _slice(GATEWAY, tid, "chunk", chunk.at, chunk.at if chunk.sent is None else chunk.sent, chunk.facts())


def _of_record(record: RequestRecord, tid: int, now: float) -> Iterator[Event]:
    """Yield the events of a request: stages up to the last frame on one track, its sound on the next."""
    end = now if record.ended is None else record.ended
    yield _name(SCHEDULER, record.request, tid)
    yield _name(SCHEDULER, f"{record.request}: sound", tid + 1)
    facts = {"number": record.number, "prompt_tokens": record.prompt_tokens, "cached_tokens": record.cached_tokens}
    for stage in stages(record, end):
        yield _slice(SCHEDULER, tid, stage.name, stage.begin, stage.end, facts)
    if record.first_call is not None and record.sounded is not None:
        yield _slice(SCHEDULER, tid + 1, "vocoder", record.first_call, record.sounded, {"calls": record.calls})


def _of_workers(recent: SchedulerRecords) -> Iterator[Event]:
    work: list[StepRecord | CallRecord] = [*recent.steps, *recent.calls]
    pids = dict(zip(sorted({record.worker for record in work}), itertools.count(FIRST_WORKER)))
    for worker, pid in pids.items():
        yield _name(pid, worker)
        yield _name(pid, "work", WORK)
    for record in work:
        told = _of_step(record) if isinstance(record, StepRecord) else _of_call(record)
        yield _slice(pids[record.worker], WORK, told.pop("name"), record.began, record.answered, told)


def _of_step(step: StepRecord) -> Event:
    return {
        "name": "prefill" if step.prompts else "step",
        "number": step.number,
        "device_ms": round(step.seconds * 1000, 3),
        "prompt_tokens": step.prompt_tokens,
        "requests": step.requests,
        "prompts": step.prompts,
    }


def _of_call(call: CallRecord) -> Event:
    return {
        "name": "call",
        "number": call.number,
        "device_ms": round(call.seconds * 1000, 3),
        "frames": sum(item.frames for item in call.items),
        "items": [{"request": item.request, "first": item.first, "frames": item.frames} for item in call.items],
    }


def _slice(pid: int, tid: int, name: str, begin: float, end: float, facts: Event) -> Event:
    ts, dur = round(begin * 1e6, 1), round(max(0.0, end - begin) * 1e6, 1)
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": facts}


def _name(pid: int, name: str, tid: int = 0) -> Event:
    kind = "thread_name" if tid else "process_name"
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}
