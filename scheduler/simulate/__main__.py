"""``python -m scheduler.simulate``: runs the scheduler at several rates and policies in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

from common.config import ConfigError
from common.config import Scheduler as Settings
from scheduler.simulate import options as command_line
from scheduler.simulate import report
from scheduler.simulate.cluster import SimulationError
from scheduler.simulate.measure import Summary
from scheduler.simulate.report import PlotError, Result
from scheduler.simulate.run import Scenario, simulate
from scheduler.simulate.search import Slo, largest_rate
from scheduler.simulate.workload import WorkloadError

FIRST_RATE = 10.0  # requests per second; where a search starts


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = command_line.parse(arguments)
    try:
        if options.plot:
            report.load_pyplot()  # fail before the work, not after it
        print(report.heading())
        results = []
        for result in _results(options):
            print(report.line(result), *([f"  then: {', '.join(result.missed)}"] if result.missed else []), flush=True)
            results.append(result)
        if options.json:
            report.write_json(results, options.json)
        if options.plot:
            load = "clients" if options.concurrency else "requests per second"
            report.plot(results, load, options.plot)
    except (command_line.OptionsError, ConfigError, WorkloadError, PlotError, SimulationError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _results(options: SimpleNamespace) -> Iterator[Result]:
    scenario = command_line.scenario(options)
    policies = options.policy or [command_line.AS_CONFIGURED]
    all_settings = {policy: command_line.settings(options.set, policy, policies) for policy in policies}
    for policy, settings in all_settings.items():
        if options.find_rate:
            yield from _search(options, policy, settings, scenario)
        elif options.concurrency:
            for clients in options.concurrency:
                yield Result(policy, clients, simulate(scenario, settings, None, clients))
        else:
            for rate in options.rate or [None]:
                summary = simulate(scenario, settings, rate)
                yield Result(policy, rate or summary.offered, summary)


def _search(options: SimpleNamespace, policy: str, settings: Settings, scenario: Scenario) -> Iterator[Result]:
    def run(rate: float) -> Summary:
        print(f"{policy}: {rate:.4g}/s", file=sys.stderr, flush=True)
        return simulate(scenario, settings, rate)

    slo = Slo(options.slo_ttfa, options.slo_underruns)
    found = largest_rate(run, slo, options.rate[0] if options.rate else FIRST_RATE)
    if found.rate is None or found.summary is None:
        print(f"{policy}: no rate holds the SLO ({', '.join(found.missed)})")
    else:
        yield Result(policy, found.rate, found.summary, found.missed)


if __name__ == "__main__":
    sys.exit(main())
