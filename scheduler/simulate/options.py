"""Command line of the simulator."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import click

from common import command_line, config
from common.config import Scheduler as Settings
from common.cost_models import COST_MODELS
from scheduler.simulate.cluster import Sizes
from scheduler.simulate.run import Scenario
from scheduler.simulate.workload import Workload, mixed, read_trace

DEFAULT_REQUESTS = 10_000
PROGRAM = "python -m scheduler.simulate"
POLICIES = ("playback", "fcfs", "fixed")
AS_CONFIGURED = "default"  # the name of a run without --policy


class OptionsError(Exception):
    """Options that contradict each other."""


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise click.BadParameter(f"{text} is not above 0")
    return value


COUNT = click.IntRange(min=1)
FILE = click.Path(path_type=Path, dir_okay=False)
WORKLOAD = [
    click.Option(["--workload"], type=click.Choice(["mixed"]), help="default: mixed"),
    click.Option(["--trace"], type=FILE, help="CSV: arrival, prompt tokens, frames, voice or nothing, 0/1"),
    click.Option(["--rate"], type=_positive, multiple=True, metavar="RATE...", help="requests per second"),
    click.Option(["--concurrency"], type=COUNT, multiple=True, metavar="CLIENTS...", help="clients of a closed loop"),
    click.Option(["--arrivals"], type=click.Choice(["poisson", "bursty"]), default="poisson"),
    click.Option(["--requests"], type=COUNT, help=f"default: {DEFAULT_REQUESTS}, or the whole trace"),
    click.Option(
        ["--duration"], type=_positive, metavar="SECONDS", help="of arrivals, instead of a number of requests"
    ),
    click.Option(
        ["--warm-up"],
        type=click.IntRange(min=0),
        default=0,
        help="first requests not to measure; default: a tenth, and the first of each client",
    ),
    click.Option(
        ["--deadline"], type=_positive, metavar="SECONDS", default=20.0, help="in which clients want first sound"
    ),
    click.Option(["--seed"], type=int, default=0),
]
SERVER = [
    click.Option(["--preset"], type=click.Choice(list(COST_MODELS)), default="h200-bf16", help="cost model"),
    click.Option(
        ["--policy"],
        type=click.Choice(POLICIES),
        multiple=True,
        metavar=f"[{'|'.join(POLICIES)}]...",
        help="default: as configured",
    ),
    click.Option(["--set"], multiple=True, metavar="[POLICY.]KEY=VALUE", help="a setting of the scheduler"),
    click.Option(["--slots"], type=COUNT, default=256, help="AR slots; the vocoder has twice as many"),
    click.Option(["--pages"], type=COUNT, default=31_250, help="KV pages"),
    click.Option(["--page-size"], type=COUNT, default=16, help="positions"),
]
OUTPUT = [
    click.Option(["--find-rate"], is_flag=True, help="search for the largest rate that holds the SLO"),
    click.Option(
        ["--slo-ttfa"], type=_positive, metavar="SECONDS", default=0.3, help="99th percentile; also for good/s"
    ),
    click.Option(["--slo-underruns"], type=float, default=0.01, help="share of streams with an underrun"),
    click.Option(["--plot"], type=FILE, help="needs matplotlib"),
    click.Option(["--json"], type=FILE),
]
COMMAND = click.Command(
    None,
    help="Run the scheduler against a cost model of the workers, in virtual time.",
    params=[*WORKLOAD, *SERVER, *OUTPUT],
    context_settings={"show_default": True},
)
SEVERAL_VALUES = ("--rate", "--concurrency", "--policy")


def parse(arguments: Sequence[str] | None = None) -> SimpleNamespace:
    """Parse the command line; exits with a message if it is wrong."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = SimpleNamespace(**command_line.parse(COMMAND, PROGRAM, _one_by_one(given)))
    try:
        _check(options)
    except OptionsError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        sys.exit(2)
    return options


def _one_by_one(arguments: Sequence[str]) -> list[str]:
    """Repeat an option of several values before each of them: ``--rate 10 20`` becomes ``--rate 10 --rate 20``."""
    result: list[str] = []
    several = ""
    for argument in arguments:
        if argument.startswith("--"):
            several = argument if argument in SEVERAL_VALUES else ""
            result.append(argument)
        elif several and result[-1] != several:
            result += [several, argument]
        else:
            result.append(argument)
    return result


def _check(options: SimpleNamespace) -> None:
    for one, other in (("trace", "workload"), ("rate", "concurrency"), ("requests", "duration")):
        if getattr(options, one) and getattr(options, other):
            raise OptionsError(f"--{one} and --{other} exclude each other")
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


def scenario(options: SimpleNamespace) -> Scenario:
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
