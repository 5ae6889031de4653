"""Processor time that this process may use: affinity and the quota of its control group, not the machine's count."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Whole cores, at least one: the affinity of the process, bounded by its control group's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(cgroup)
    return cores if quota is None else max(1, min(cores, math.floor(quota + 0.01)))


def cgroup_quota(cgroup: Path = CGROUP) -> float | None:
    """Cores that the control group may use on average, of version 2 or 1; None: no limit, or none to be seen."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    try:
        return int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
