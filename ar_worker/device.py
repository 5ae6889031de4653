"""The device interface: copies of inputs and outputs, events and captures, so that tests can use a fake."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

WARM_UPS = 2


class Pending(Protocol):
    """A step on its way."""

    def wait(self) -> float:
        """Wait until the step and the copy of its output are done; seconds that the step took."""


class Device(Protocol):
    """Runs the steps. ``torch``: its torch device; ``depth`` as in :class:`ar_worker.executor.Executor`."""

    torch: torch.device
    depth: int

    def buffers(self, count: int, size: int) -> list[tuple[Tensor, Tensor]]:
        """``count`` pairs of host and device memory, uint8 [size]; the host's can be copied without a wait."""

    def host_like(self, tensor: Tensor) -> Tensor:
        """Host memory for a tensor's contents, that can be copied to without a wait."""

    def free_memory(self) -> int | None:
        """Bytes of device memory that are free; None where that is no bound to plan by."""

    def begin(self) -> object:
        """Note the beginning of a step."""

    def copy_in(self, host: Tensor, device: Tensor) -> None:
        """Copy before what is computed from now on."""

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """Record what ``run`` launches, on the same memory; the result launches it again.

        Raises:
            RuntimeError: it can't be captured, or fails.
        """

    def copy_out(self, begun: object, device: Tensor, host: Tensor) -> Pending:
        """Copy after what was computed so far; ``begun`` is what :meth:`begin` returned for the step."""


class _Done:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def wait(self) -> float:
        return self._seconds


class HostDevice:
    """The CPU: the synchronous twin. Host and device memory are the same."""

    torch = torch.device("cpu")
    depth = 1

    def buffers(self, count: int, size: int) -> list[tuple[Tensor, Tensor]]:
        made = [torch.zeros(size, dtype=torch.uint8) for _ in range(count)]
        return [(buffer, buffer) for buffer in made]

    def host_like(self, tensor: Tensor) -> Tensor:
        return tensor

    def free_memory(self) -> int | None:
        return None

    def begin(self) -> object:
        return time.perf_counter()

    def copy_in(self, host: Tensor, device: Tensor) -> None:
        pass

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        run()
        return run

    def copy_out(self, begun: object, device: Tensor, host: Tensor) -> Pending:
        assert isinstance(begun, float)
        return _Done(time.perf_counter() - begun)


class _CudaPending:
    def __init__(self, start: torch.cuda.Event, end: torch.cuda.Event, copied: torch.cuda.Event) -> None:
        self._start, self._end, self._copied = start, end, copied

    def wait(self) -> float:
        self._copied.synchronize()
        return self._start.elapsed_time(self._end) / 1000


class CudaDevice:
    """A GPU. Outputs are copied on a stream of their own, so that the next step need not wait for them."""

    depth = 2

    def __init__(self, device: torch.device) -> None:
        self.torch = device
        torch.cuda.set_device(device)  # streams and events of this thread are the device's
        self._copies, self._captures = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def buffers(self, count: int, size: int) -> list[tuple[Tensor, Tensor]]:
        device = torch.zeros(size, dtype=torch.uint8, device=self.torch)
        return [(torch.zeros(size, dtype=torch.uint8).pin_memory(), device) for _ in range(count)]

    def host_like(self, tensor: Tensor) -> Tensor:
        return torch.zeros(tensor.shape, dtype=tensor.dtype).pin_memory()

    def free_memory(self) -> int | None:
        return torch.cuda.mem_get_info(self.torch)[0]

    def begin(self) -> object:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def copy_in(self, host: Tensor, device: Tensor) -> None:
        device.copy_(host, non_blocking=True)

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        """All captures are on one stream and share one pool. The runs before it load what is loaded at first use."""
        self._captures.wait_stream(torch.cuda.current_stream(self.torch))
        with torch.cuda.stream(self._captures):
            for _ in range(WARM_UPS):
                run()
        self._captures.synchronize()
        gc.collect()  # memory must not be freed during a capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self._pool, self._captures, capture_error_mode="thread_local"):
            run()
        return graph.replay

    def copy_out(self, begun: object, device: Tensor, host: Tensor) -> Pending:
        assert isinstance(begun, torch.cuda.Event)
        end, copied = torch.cuda.Event(enable_timing=True), torch.cuda.Event(blocking=True)
        end.record()
        with torch.cuda.stream(self._copies):
            self._copies.wait_event(end)
            host.copy_(device, non_blocking=True)
            copied.record()
        return _CudaPending(begun, end, copied)


def choose_device(name: str) -> Device:
    """The device of that name; ``auto``: CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    return CudaDevice(device) if device.type == "cuda" else HostDevice()
