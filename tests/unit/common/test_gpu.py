"""What a worker tells of its GPU, before a library that plays NVIDIA's."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest

from common import gpu

GIB = 1024**3


class FakeNvml(ModuleType):
    """One GPU, number 3 of its machine, on which this process and another hold memory."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.works = True
        self.NVML_CLOCK_SM, self.NVML_CLOCK_MEM, self.NVML_TEMPERATURE_GPU = 1, 2, 0
        own, other = SimpleNamespace(pid=os.getpid(), usedGpuMemory=5 * GIB), SimpleNamespace(pid=1, usedGpuMemory=GIB)
        self.processes = [other, own]

    def _ask(self, value: object) -> object:
        if not self.works:
            raise self.NVMLError("no answer")
        return value

    def nvmlInit(self) -> None:  # noqa: N802
        self._ask(None)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        assert uuid == "GPU-1234"
        return "handle"

    def nvmlDeviceGetIndex(self, handle: str) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> object:  # noqa: N802
        return self._ask(SimpleNamespace(used=7 * GIB, total=80 * GIB))

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> object:  # noqa: N802
        return self._ask(SimpleNamespace(gpu=42))

    def nvmlDeviceGetName(self, handle: str) -> object:  # noqa: N802
        return self._ask("NVIDIA H200")

    def nvmlSystemGetDriverVersion(self) -> object:  # noqa: N802
        return self._ask("570.1")

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> object:  # noqa: N802
        return self._ask((9, 0))

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> object:  # noqa: N802
        return self._ask({1: 1980, 2: 3201}[kind])

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> object:  # noqa: N802
        return self._ask(700_000)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> object:  # noqa: N802
        raise self.NVMLError("not supported")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> object:  # noqa: N802
        return self._ask(self.processes)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234"))
    return fake


def samples(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def test_memory_and_utilization_are_told_under_the_number_of_the_gpu(nvml: FakeNvml) -> None:
    registry = CollectorRegistry()
    gpu.watch(registry, "cuda:0")
    assert samples(registry) == {
        'shoal_gpu_memory_used_bytes{device="3"}': 5 * GIB,
        'shoal_gpu_device_memory_used_bytes{device="3"}': 7 * GIB,
        'shoal_gpu_device_memory_bytes{device="3"}': 80 * GIB,
        'shoal_gpu_utilization_ratio{device="3"}': 0.42,
    }


def test_facts_of_the_gpu_are_logged_as_far_as_known(nvml: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="common.gpu"):
        gpu.watch(CollectorRegistry(), "cuda:0")
    (record,) = (record for record in caplog.records if record.message == "GPU")
    facts = {name: getattr(record, name) for name in ("device", "gpu", "driver", "capability", "celsius")}
    assert facts == {
        "device": "cuda:0",
        "gpu": "NVIDIA H200",
        "driver": "570.1",
        "capability": "9.0",
        "celsius": "unknown: not supported",
    }
    numbers = ("memory_bytes", "memory_used_bytes", "most_sm_mhz", "most_memory_mhz", "power_limit_watts")
    assert [getattr(record, name) for name in numbers] == [80 * GIB, 7 * GIB, 1980, 3201, 700]


def test_what_the_library_does_not_know_has_no_sample(nvml: FakeNvml) -> None:
    """In a container the processes may have other numbers."""
    registry = CollectorRegistry()
    nvml.processes = []
    gpu.watch(registry, "cuda:0")
    assert 'shoal_gpu_memory_used_bytes{device="3"}' not in samples(registry)
    assert samples(registry)['shoal_gpu_utilization_ratio{device="3"}'] == 0.42


def test_a_gpu_that_stops_to_answer_is_logged_once_and_spoils_nothing(
    nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    gpu.watch(registry, "cuda:0")
    nvml.works = False
    assert samples(registry) == samples(registry) == {}
    assert [record.message for record in caplog.records] == ["the GPU no longer answers"]
    nvml.works = True
    assert len(samples(registry)) == 4


@pytest.mark.parametrize("device", ["cpu", "none", "cuda:0"])
def test_without_a_gpu_there_are_no_families(nvml: FakeNvml, device: str, caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    nvml.works = False
    with caplog.at_level("INFO"):
        gpu.watch(registry, device)
    assert generate_latest(registry) == b""
    assert len(caplog.records) == 1
