"""GPU of the cost model: steps queue for one half, vocoder calls for the other, and each slows the other."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, NamedTuple


class Job(NamedTuple):
    """A job on a device: its duration alone in seconds, and a tag for its owner."""

    seconds: float
    payload: Any


class Device:
    """Queue of one kind of work. ``contention``: slowdown factor beside the other kind."""

    def __init__(self, contention: float) -> None:
        self.contention = contention
        self.jobs: deque[Job] = deque()
        self.remaining = 0.0  # of the first job, as work: seconds when alone
        self.began = 0.0
        self.ends = math.inf  # if the other device goes on as it does
        self.busy_seconds = 0.0  # of finished jobs


class Finished(NamedTuple):
    device: Device
    payload: Any
    duration: float  # seconds, contention included


class Gpu:
    """Two devices that share one GPU. Times are absolute and never go back."""

    def __init__(self, ar_contention: float, vocoder_contention: float) -> None:
        self.ar = Device(ar_contention)
        self.vocoder = Device(vocoder_contention)
        self._devices = (self.ar, self.vocoder)
        self._now = 0.0

    @property
    def next_end(self) -> float:
        """Time of the next completion; infinite when nothing runs."""
        return min(self.ar.ends, self.vocoder.ends)

    @property
    def busy(self) -> bool:
        return bool(self.ar.jobs or self.vocoder.jobs)

    def start(self, device: Device, job: Job, now: float) -> None:
        """Queue a job."""
        self._advance(now)
        device.jobs.append(job)
        if len(device.jobs) == 1:
            self._begin(device)
        self._foresee()

    def finish(self, now: float) -> list[Finished]:
        """Return the jobs that end at ``now``, which must not be later than :attr:`next_end`."""
        ended = [device for device in self._devices if device.ends <= now]
        self._advance(now)
        finished = [self._end(device) for device in ended]
        self._foresee()
        return finished

    def _advance(self, now: float) -> None:
        for device in self._devices:
            if device.jobs:
                device.remaining -= (now - self._now) / self._slowdown(device)
        self._now = now

    def _slowdown(self, device: Device) -> float:
        return device.contention if self.ar.jobs and self.vocoder.jobs else 1.0

    def _begin(self, device: Device) -> None:
        device.remaining, device.began = device.jobs[0].seconds, self._now

    def _end(self, device: Device) -> Finished:
        job, duration = device.jobs.popleft(), self._now - device.began
        device.busy_seconds += duration
        if device.jobs:
            self._begin(device)
        return Finished(device, job.payload, duration)

    def _foresee(self) -> None:
        for device in self._devices:
            device.ends = self._now + max(0.0, device.remaining) * self._slowdown(device) if device.jobs else math.inf
