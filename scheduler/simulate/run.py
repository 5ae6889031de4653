"""Runs a scenario, the part that is shared by all policies and rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from common.config import Scheduler as Settings
from common.cost_models import CostModel
from scheduler.simulate.cluster import Cluster, SimulationError, Sizes
from scheduler.simulate.measure import Summary, summarise
from scheduler.simulate.workload import Workload


class Scenario(NamedTuple):
    """``workload`` gives the requests at a rate (1/s; None in a closed loop). ``warm_up`` 0: a tenth of them,
    and the first of each client.

    ``slo_ttfa``: seconds to the first audio that a good request takes at most.
    """

    cost: CostModel
    sizes: Sizes
    workload: Callable[[float | None], Workload]
    warm_up: int
    slo_ttfa: float


def simulate(scenario: Scenario, settings: Settings, rate: float | None, clients: int | None = None) -> Summary:
    """Run the scenario at a rate, or in a closed loop of clients.

    Raises:
        SimulationError: see :meth:`Cluster.run`; or the warm-up takes all requests.
    """
    workload = scenario.workload(rate)
    requests = len(workload.frames)
    warm_up = scenario.warm_up or max(requests // 10, clients or 0)
    if warm_up >= requests - 1:
        raise SimulationError(f"{requests} requests leave nothing to measure after a warm-up of {warm_up}")
    cluster = Cluster(settings, scenario.cost, scenario.sizes, workload, warm_up, clients)
    cluster.run()
    assert cluster.begin is not None, "the first measured request has arrived"
    assert cluster.end is not None, "the last request has arrived"
    return summarise(cluster.listeners[warm_up:], cluster.lateness, cluster.begin, cluster.end, scenario.slo_ttfa)
