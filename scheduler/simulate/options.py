"""Command line of the simulator."""

from __future__ import annotations

import argparse
from pathlib import Path

from common import config
from common.config import Scheduler as Settings
from common.cost_models import COST_MODELS
from scheduler.simulate.cluster import Sizes
from scheduler.simulate.run import Scenario
from scheduler.simulate.workload import Workload, mixed, read_trace

DEFAULT_REQUESTS = 10_000
POLICIES = ("playback", "fcfs", "fixed")
AS_CONFIGURED = "default"  # the name of a run without --policy


class OptionsError(Exception):
    """Options that contradict each other."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; exits with a message if it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.simulate", description=__doc__)
    _add_workload(parser.add_argument_group("workload"))
    _add_server(parser.add_argument_group("server"))
    _add_output(parser.add_argument_group("search and output"))
    options = parser.parse_args(arguments)
    try:
        _check(options)
    except OptionsError as error:
        parser.error(str(error))
    return options


def _add_workload(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group()
    source.add_argument("--workload", choices=["mixed"], default="mixed")
    source.add_argument("--trace", type=Path, help="CSV: arrival, prompt tokens, frames, voice or nothing, 0/1")
    load = group.add_mutually_exclusive_group()
    load.add_argument("--rate", type=_positive, nargs="+", default=[], help="requests per second")
    load.add_argument("--concurrency", type=_count, nargs="+", default=[], help="clients of a closed loop")
    group.add_argument("--arrivals", choices=["poisson", "bursty"], default="poisson")
    length = group.add_mutually_exclusive_group()
    length.add_argument("--requests", type=_count, help=f"default: {DEFAULT_REQUESTS}, or the whole trace")
    length.add_argument("--duration", type=_positive, help="seconds of arrivals, instead of a number of requests")
    group.add_argument(
        "--warm-up",
        type=_count,
        default=0,
        help="first requests not to measure; default: a tenth, and the first of each client",
    )
    group.add_argument("--deadline", type=_positive, default=20.0, help="seconds in which clients want first sound")
    group.add_argument("--seed", type=int, default=0)


def _add_server(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--preset", choices=list(COST_MODELS), default="h200-bf16", help="cost model")
    group.add_argument("--policy", choices=POLICIES, nargs="+", default=[], help="default: as configured")
    group.add_argument(
        "--set", action="append", default=[], metavar="[POLICY.]KEY=VALUE", help="a setting of the scheduler"
    )
    group.add_argument("--slots", type=_count, default=256, help="AR slots; the vocoder has twice as many")
    group.add_argument("--pages", type=_count, default=31_250, help="KV pages")
    group.add_argument("--page-size", type=_count, default=16, help="positions")


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--find-rate", action="store_true", help="search for the largest rate that holds the SLO")
    group.add_argument("--slo-ttfa", type=_positive, default=0.3, help="seconds, 99th percentile; also for good/s")
    group.add_argument("--slo-underruns", type=float, default=0.01, help="share of streams with an underrun")
    group.add_argument("--plot", type=Path, metavar="FILE", help="needs matplotlib")
    group.add_argument("--json", type=Path, metavar="FILE")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _check(options: argparse.Namespace) -> None:
    if options.find_rate and options.concurrency:
        raise OptionsError("--find-rate is for open loops, not for --concurrency")
    if options.find_rate and len(options.rate) > 1:
        raise OptionsError("--find-rate starts from one --rate")
    if options.duration and (options.concurrency or options.trace):
        raise OptionsError("--duration is for --workload at a rate; use --requests")
    if not (options.rate or options.concurrency or options.find_rate or options.trace):
        raise OptionsError("say --rate, --concurrency, --find-rate or --trace")


def settings(overrides: list[str], policy: str, policies: list[str]) -> Settings:
    """Return the settings of a policy. ``overrides``: ``key=value`` for all, or ``policy.key=value`` for one.

    Raises:
        OptionsError: an override for a policy that is not simulated.
        ConfigError: no such key, or a value out of range.
    """
    chosen = [] if policy == AS_CONFIGURED else [f"scheduler.policy={policy}"]
    for override in overrides:
        prefix, dot, rest = override.partition("=")[0].partition(".")
        if dot and prefix not in policies:
            raise OptionsError(f"--set {override}: {prefix} is not simulated")
        if not dot or prefix == policy:
            chosen.append("scheduler." + override.removeprefix(f"{policy}." if rest else ""))
    return config.resolve(overrides=chosen).scheduler


def scenario(options: argparse.Namespace) -> Scenario:
    """Build the scenario shared by all runs.

    Raises:
        WorkloadError: the trace can't be used.
    """
    trace = None if options.trace is None else read_trace(options.trace)

    def workload(rate: float | None) -> Workload:
        if trace is not None:
            source = trace if options.requests is None else trace.first(options.requests)
        else:
            by_duration = options.duration and round(options.duration * (rate or 0))
            source = mixed(options.requests or by_duration or DEFAULT_REQUESTS, options.arrivals, options.seed)
        source = source._replace(deadline=options.deadline)
        return source if rate is None else source.at_rate(rate)

    sizes = Sizes(options.slots, options.pages, options.page_size)
    return Scenario(COST_MODELS[options.preset], sizes, workload, options.warm_up, options.slo_ttfa)
