"""Runs the kernels in Triton's interpreter beside their twins; a JSON line per comparison. Needs TRITON_INTERPRET=1.

A process of its own: what Triton is asked for when it is imported holds for the process. bf16 is not among the types,
since the interpreter's products of it are wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch
from ar_support import DATA, GREEDY, Driver, settings
from fake_device import FakeDevice

from ar_worker.kernels.calls import totals
from ar_worker.kernels.launch import KERNELS
from ar_worker.ops import EAGER, Ops
from ar_worker.torch_executor import TorchExecutor
from common.messages import Sampling
from deploy.gpu_check.cases import CASES, SMALL, Maker, compare, paged_case, run_twins

ROWS = 3


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class LazyDevice(FakeDevice):
    """Captures without a run, since the interpreter is slow."""

    def capture(self, run: Callable[[], None]) -> Callable[[], None]:
        self.busy.clear()
        return run


def twins(dtype: torch.dtype, ops: Collection[str]) -> None:
    make = Maker(SMALL, dtype, torch.device("cpu"))
    for op, cases in CASES.items():
        if op not in ops:
            continue
        for number, arguments in enumerate(cases(make, ROWS)):
            difference = compare(run_twins(op, KERNELS, EAGER, arguments))
            report(check="twins", op=op, case=number, error=difference.error, same=difference.same)


def alone() -> None:
    """Rows of a paged decode alone and among others."""
    q, kv, pages, slots, positions, size = paged_case(Maker(SMALL, torch.float32, torch.device("cpu")), [1, 65, 1025])
    together = KERNELS.paged_decode(q, kv, pages, slots, positions, size)
    for row in range(len(q)):
        one = slice(row, row + 1)
        single = KERNELS.paged_decode(q[one], kv, pages, slots[one], positions[one], size)
        report(check="alone", row=row, equal=torch.equal(single[0], together[row]))


def frames() -> None:
    """Codes of the tiny checkpoint by captured frames with kernels, and by eager ones."""
    outputs = []
    drawn = Sampling(temperature=0.9, fast_temperature=0.8, top_p=0.9, top_k=30, seed=5)
    for ops in (KERNELS._replace(draw_code=EAGER.draw_code), EAGER):
        kernels = ops is not EAGER
        device = LazyDevice() if kernels else None
        executor = TorchExecutor(DATA / "checkpoint_tiny", settings(pages=8), device, ops)
        if executor._graphs:
            executor._graphs.capture([4])
        driver = Driver(executor, list(range(8)))
        starts: list[tuple[int, int, Any, bool]] = [
            (slot, 0, np.full((11, length), slot + 1), True) for slot, length in enumerate((17, 5))
        ]
        steps = [driver.step(assign={0: drawn, 1: GREEDY}, prefill=starts)]
        steps.append(driver.step(decode={0: 17, 1: 5}))
        outputs.append([step.codes.tolist() for step in steps])
        if executor._graphs:
            report(check="path", replayed=executor._graphs.replayed, **totals())
    report(check="frames", kernels=outputs[0], eager=outputs[1])


def unsupported() -> None:
    """A call that no kernel serves: counted, with the twin's result."""
    before, x = totals()["eager"], torch.randn(8, 3).t()
    assert isinstance(KERNELS, Ops)
    equal = torch.equal(KERNELS.swiglu(x), EAGER.swiglu(x))
    report(check="unsupported", equal=equal, counted=totals()["eager"] - before)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "fp16":
        twins(torch.float16, CASES.keys() - {"draw_code"})
    elif sys.argv[1] == "frames":
        frames()
    else:
        twins(torch.float32, CASES)
        alone()
        unsupported()
