"""Fixtures of the AR worker's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from ar_support import DATA, Driver, settings
from safetensors.torch import load_file
from torch import Tensor

from ar_worker.torch_executor import TorchExecutor


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], dict[str, Tensor]]:
    return lambda name, file: load_file(DATA / name / f"{file}.safetensors")


@pytest.fixture(scope="session", params=["eager", "native"])
def tiny_executor(request: pytest.FixtureRequest) -> TorchExecutor:
    executor = TorchExecutor(DATA / "checkpoint_tiny", settings(native=request.param == "native"))
    assert executor.frame_path == request.param
    return executor


@pytest.fixture
def tiny(tiny_executor: TorchExecutor) -> Iterator[Driver]:
    """A driver whose slots are released at the end."""
    torch.set_num_threads(1)
    driver = Driver(tiny_executor, list(range(64)))
    yield driver
    driver.step(release=list(driver.owned))
