"""Scheduler records: queries the scheduler for its recent requests, steps and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common import timeline
from common.timeline import RequestRecord, SchedulerRecords
from gateway.observe import process_ports


async def ask(run_dir: Path, since: float, until: float, work: bool) -> SchedulerRecords | None:
    """Query what ran between two times, steps and calls only with ``work``; None without an answer."""
    return await asyncio.to_thread(_ask, run_dir / "scheduler.metrics", since, until, work)


def _ask(port_file: Path, since: float, until: float, work: bool) -> SchedulerRecords | None:
    data = process_ports.fetch(port_file, f"{timeline.PAGE}?since={since}&until={until}" + f"&{timeline.WORK}" * work)
    return None if data is None else timeline.decode(data)


def of_request(recent: SchedulerRecords, engine_request: str) -> SchedulerRecords:
    """Select the records of a request, whose engine requests are ``ID``, ``ID.1``, ``ID.2`` …"""
    records = [record for record in recent.requests if record.request.partition(".")[0] == engine_request]
    numbers = {record.number for record in records}
    steps = [step for step in recent.steps if not numbers.isdisjoint(step.requests + step.prompts)]
    calls = [call for call in recent.calls if not numbers.isdisjoint(item.request for item in call.items)]
    return SchedulerRecords(records, steps, calls)


class Stage(NamedTuple):
    """A stage: ``queue`` until admission, ``prefill`` until the first codes, ``decode`` until the last."""

    name: str
    begin: float
    end: float


def stages(record: RequestRecord, until: float) -> Iterator[Stage]:
    """Yield the stages that an engine request has begun; an unfinished one ends at ``until``."""
    begun = [("queue", record.queued), ("prefill", record.admitted), ("decode", record.first_codes)]
    over = record.generated or record.ended or until
    there = [(name, at) for name, at in begun if at is not None]
    for (name, begin), (_, end) in zip(there, [*there[1:], ("", over)], strict=True):
        yield Stage(name, begin, end)
