"""A chaos run: load, faults one after another, and the oracle.

Every stream equals that of an undisturbed run or ends with a named error within its bound; after each fault the group
is ready again; at the end nothing is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.faults import BACK_SECONDS, POISON_SEED, Fault, Injector
from tests.chaos.load import Load, Tally, speeches
from tests.integration.group import Group, costs, eventually, free_port, running

PAUSE_SECONDS = (0.3, 2.0)  # between a group that is ready and the next fault
IDLE_SECONDS = 30.0
DIFFERENT_REQUESTS = 24


@dataclass
class Report:
    """What happened. ``back``: seconds until the group was ready again, by kind of fault."""

    faults: Counter[str]
    back: dict[str, list[float]]
    tally: Tally
    held: dict[str, float]
    costs: dict[str, float]

    def __str__(self) -> str:
        kinds = [
            f"{kind}: {count}, ready again after at most {max(self.back[kind]):.1f} s"
            for kind, count in self.faults.items()
        ]
        errors = ", ".join(f"{name} {count}" for name, count in self.tally.errors.items()) or "none"
        told = [f"  {name}: {round(value, 1):g}" for name, value in sorted(self.costs.items()) if value]
        lines = [
            f"faults: {self.faults.total()}",
            *(f"  {line}" for line in sorted(kinds)),
            f"replies: {dict(self.tally.outcomes)}; named errors: {errors}",
            f"held at the end: {self.held or 'nothing'}",
            "cost:",
            *told,
        ]
        return "\n".join(lines + [f"FAULTY {line}" for line in self.tally.faulty])


def options(run_dir: Path) -> list[str]:
    """Options of the group: cost-model executors that can be made to hang, and short bounds."""
    return [
        *costs(
            step_ms=10.0,
            call_ms=3.0,
            ar_worker__slots=16,
            ar_worker__cost__hang_file=str(run_dir / "hang-ar_worker"),
            vocoder_worker__cost__hang_file=str(run_dir / "hang-vocoder_worker"),
            ar_worker__cost__poison_seed=POISON_SEED,
            scheduler__hang_timeout=3.0,
            scheduler__recovery_seconds=60.0,
            gateway__first_audio_deadline=60.0,
        ),
        "--port",
        str(free_port()),
    ]


def chaos(faults: int, seed: int, clients: int, say: Callable[[str], None] = lambda line: None) -> Report:
    """Run so many faults."""
    with tempfile.TemporaryDirectory(prefix="shoal-chaos-") as directory, running(*options(Path(directory))) as group:
        chance = random.Random(seed)
        load = Load(group.base, speeches(chance, DIFFERENT_REQUESTS), random.Random(seed + 1))
        injector = Injector(group, Path(directory), chance)
        report = Report(Counter(), {}, load.tally, {}, {})
        meter = Meter()
        asyncio.run(_run(group, load, injector, report, meter, chance, faults, clients, say))
        meter.read(group)
        report.held = _held(group)
        report.costs = dict(meter.totals)
        return report


async def _run(
    group: Group,
    load: Load,
    injector: Injector,
    report: Report,
    meter: Meter,
    chance: random.Random,
    faults: int,
    clients: int,
    say: Callable[[str], None],
) -> None:
    await load.learn()
    clients_at_work = asyncio.create_task(load.run(clients))
    try:
        for number in range(faults):
            await asyncio.sleep(chance.uniform(*PAUSE_SECONDS))
            fault = injector.draw()
            await asyncio.to_thread(meter.read, group)
            seconds = await _inject(group, load, fault)
            report.faults[fault.kind] += 1
            report.back.setdefault(fault.kind, []).append(seconds)
            replies = dict(load.tally.outcomes)
            say(f"{number + 1}/{faults} {fault.kind} {fault.detail}: ready after {seconds:.1f} s; {replies}")
    finally:
        load.stop()
        await clients_at_work
    await asyncio.to_thread(eventually, lambda: not _held(group), IDLE_SECONDS)


async def _inject(group: Group, load: Load, fault: Fault) -> float:
    """Inject a fault and wait until the group is ready; the seconds that took after its end."""
    began = time.monotonic()
    if fault.breaks:
        load.breaks.append((began, began + BACK_SECONDS))
    await asyncio.to_thread(fault.inject)
    ended = time.monotonic()
    await asyncio.sleep(0.3)  # until a loss is noticed
    await asyncio.to_thread(eventually, group.ready, BACK_SECONDS)
    if fault.breaks:
        load.breaks[-1] = (began, time.monotonic())
    return time.monotonic() - ended


def _held(group: Group) -> dict[str, float]:
    """What is held; nothing when idle."""
    names = ("shoal_num_requests_running", "shoal_num_requests_waiting", "shoal_leaked_resources")
    held = {name: group.metric(name) for name in (*names, "shoal_http_requests_in_flight")}
    held["active pages"] = group.metric("shoal_kv_pages", state="active")
    held["AR slots"] = group.metric("shoal_ar_slots", state="used")
    held["vocoder slots"] = group.metric("shoal_vocoder_slots", state="used")
    return {name: value for name, value in held.items() if value}


class Meter:
    """Adds up counters over the restarts of the processes that have them."""

    NAMES = (
        "shoal_recoveries_total",
        "shoal_remade_frames_total",
        "shoal_fault_underrun_seconds_count",
        "shoal_fault_underrun_seconds_sum",
        "shoal_stream_resumes_total",
        "shoal_stream_fault_pause_seconds_count",
        "shoal_stream_fault_pause_seconds_sum",
    )

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self._last: dict[str, float] = {}

    def read(self, group: Group) -> None:
        """Add what was counted since the last time; what a process counted just before it died is missed."""
        with contextlib.suppress(OSError):
            for name, value in group.metrics().items():
                if name.startswith(self.NAMES):
                    before = self._last.get(name, 0.0)
                    self.totals[name] += value - before if value >= before else value
                    self._last[name] = value
