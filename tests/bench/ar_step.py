"""Milliseconds per frame of the AR executor, by batch size: ``python tests/bench/ar_step.py models/mini``."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np

from ar_worker.torch_executor import ExecutorSettings, TorchExecutor
from common.messages import Assign, Prefill, Sampling, StepPlan

PAGE_SIZE = 16


def measure(executor: TorchExecutor, batch: int, prompt: int, frames: int) -> tuple[float, float]:
    """Seconds to prefill one prompt, and median seconds of a decode step of ``batch`` sequences."""
    width = -(-(prompt + frames + 1) // PAGE_SIZE)
    sampling = Sampling(temperature=0.8, fast_temperature=0.8, top_p=0.9, top_k=30, seed=1)
    tokens, none = np.zeros((11, prompt), np.int32), np.zeros(0, np.int32)
    prefills = []
    for slot in range(batch):
        pages = np.array([(slot, page, slot * width + page) for page in range(width)], np.int32)
        plan = StepPlan(0, [], [Assign(slot, sampling)], [Prefill(slot, 0, prompt, True)])
        prefills.append(executor.execute(plan, [tokens, none, pages]).duration)
    decode = [tokens[:, :0], np.arange(batch, dtype=np.int32), np.zeros((0, 3), np.int32)]
    steps = [executor.execute(StepPlan(0, [], [], []), decode).duration for _ in range(frames)]
    return statistics.median(prefills), statistics.median(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--prompt", type=int, default=100, help="positions")
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--eager", action="store_true", help="frames in PyTorch even where C++ would do")
    args = parser.parse_args()
    pages = max(args.batches) * -(-(args.prompt + args.frames + 1) // PAGE_SIZE)
    settings = ExecutorSettings(
        device=args.device,
        dtype="auto",
        slots=max(args.batches),
        pages=pages,
        page_size=PAGE_SIZE,
        max_prefill_tokens=args.prompt,
        threads=args.threads,
        deterministic=False,
        native=not args.eager,
    )
    executor = TorchExecutor(args.checkpoint, settings)
    print(f"frames: {executor.frame_path}")
    for batch in args.batches:
        prefill, step = measure(executor, batch, args.prompt, args.frames)
        print(f"batch {batch:3d}: {step * 1e3:7.2f} ms per frame, prefill of {args.prompt}: {prefill * 1e3:7.2f} ms")


if __name__ == "__main__":
    main()
