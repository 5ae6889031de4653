"""A device that runs ahead of the host, on the CPU: outputs are copied as late as they may be."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class FakePending:
    """The copy of a step's output, made when it is waited for."""

    def __init__(self, device: FakeDevice, source: Tensor, target: Tensor, buffer: int) -> None:
        self._device, self._source, self._target, self._buffer = device, source, target, buffer

    def wait(self) -> float:
        self._device.log.append("wait")
        self._target.copy_(self._source)
        self._device.busy.discard(self._buffer)
        return 0.25


class FakeDevice:
    """Host and device memory are apart. ``log`` has what was asked for, in order."""

    torch = torch.device("cpu")
    free: int | None = None

    def __init__(self, depth: int = 2, capture_fails_at: int = -1) -> None:
        self.depth, self.log, self.busy = depth, list[str](), set[int]()
        self._fails_at, self._sent = capture_fails_at, 0
        self.captured: list[Callable[[], None]] = []

    def buffers(self, count: int, size: int) -> list[tuple[Tensor, Tensor]]:
        device = torch.zeros(size, dtype=torch.uint8)
        return [(torch.zeros(size, dtype=torch.uint8), device) for _ in range(count)]

    def host_like(self, tensor: Tensor) -> Tensor:
        return torch.full_like(tensor, -1)

    def free_memory(self) -> int | None:
        return self.free

    def begin(self) -> object:
        self.log.append("begin")
        return None

    def copy_in(self, host: Tensor, device: Tensor) -> None:
        assert host.data_ptr() not in self.busy, "a buffer was filled again before its step was done"
        self._sent = host.data_ptr()
        self.busy.add(self._sent)
        self.log.append("in")
        device.copy_(host)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        if len(self.captured) == self._fails_at:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        run()
        self.captured.append(run)
        self.busy.clear()

        def replay() -> None:
            self.log.append("replay")
            run()

        return replay

    def copy_out(self, begun: object, device: Tensor, host: Tensor) -> FakePending:
        self.log.append("out")
        return FakePending(self, device, host, self._sent)
