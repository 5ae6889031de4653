"""Memory and utilization of a worker's GPU, read from NVIDIA's management library at each scrape."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from common.metrics import Family

LABELS = ("device",)  # its number, as nvidia-smi counts
FAMILIES = [
    Family("shoal_gpu_memory_used_bytes", "gauge", LABELS, "Memory of a GPU that the process holds."),
    Family("shoal_gpu_device_memory_used_bytes", "gauge", LABELS, "Memory of a GPU in use, by whomever."),
    Family("shoal_gpu_device_memory_bytes", "gauge", LABELS, "Memory of a GPU."),
    Family("shoal_gpu_utilization_ratio", "gauge", LABELS, "Share of the time in which anything ran on a GPU."),
]

log = logging.getLogger(__name__)


def watch(registry: CollectorRegistry, device: str) -> None:
    """Export the families of the GPU ``device`` (torch's name); none without a GPU or its library."""
    if not device.startswith("cuda"):
        log.info("no GPU to watch", extra={"device": device})
        return
    import pynvml
    import torch  # loaded already: it computes on the device

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        registry.register(_Gpu(pynvml, handle))
        log.info("GPU", extra={"device": device} | _facts(pynvml, handle))
    except pynvml.NVMLError as error:
        log.warning("the GPU can't be watched", extra={"device": device, "cause": str(error)})


def _facts(nvml: Any, handle: Any) -> dict[str, object]:
    """Name, driver, capability, memory, clocks, power and temperature, as far as the library knows them."""
    readings: dict[str, Callable[[], object]] = {
        "gpu": lambda: nvml.nvmlDeviceGetName(handle),
        "driver": nvml.nvmlSystemGetDriverVersion,
        "capability": lambda: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(handle))),
        "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "most_sm_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        "most_memory_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    }
    facts: dict[str, object] = {}
    for name, read in readings.items():
        try:
            facts[name] = read()
        except nvml.NVMLError as error:
            facts[name] = f"unknown: {error}"
    return facts


class _Gpu(Collector):
    """Collector of one GPU, through ``nvml``. A GPU that no longer answers has no samples."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._name = str(nvml.nvmlDeviceGetIndex(handle))
        self._failed = False

    def describe(self) -> Iterable[Metric]:
        return [GaugeMetricFamily(family.name, family.help, labels=LABELS) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        for family, value in zip(FAMILIES, self._values(), strict=True):
            metric = GaugeMetricFamily(family.name, family.help, labels=LABELS)
            if value is not None:
                metric.add_metric([self._name], value)
            yield metric

    def _values(self) -> list[float | None]:
        """Values in the order of :data:`FAMILIES`; None where unknown."""
        nvml, handle = self._nvml, self._handle
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except nvml.NVMLError as error:
            if not self._failed:
                log.warning("the GPU no longer answers", extra={"cause": str(error)})
            self._failed = True
            return [None] * len(FAMILIES)
        own = next((process.usedGpuMemory for process in processes if process.pid == os.getpid()), None)
        return [own, memory.used, memory.total, busy]
