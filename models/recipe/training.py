"""The training loop of every step: seeded, resumable, with a progress bar and a log.

Several processes may train together: each draws its part of a batch, and all take the same step, by the mean of their
gradients.
"""

from __future__ import annotations

import functools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from tqdm import tqdm

from models.recipe.settings import Settings

SAVE_EVERY = 120.0  # seconds
LOG_EVERY = 50  # steps


class Run:
    """One training run with its state in ``work/NAME.pt`` and its log in ``NAME.jsonl``.

    Every step draws from generators seeded by (seed, step, process): a run that was stopped goes on as if it had not
    been. ``processes`` is how many train together.
    """

    def __init__(self, settings: Settings, name: str, steps: int, modules: nn.Module, optimizers: list[Optimizer]):
        self.path = settings.work / f"{name}.pt"
        self.steps, self._name, self._seed = steps, name, settings.seed
        self._modules, self._optimizers = modules, optimizers
        self._rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        self._averages: dict[str, float] = {}
        self._process, self.processes = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        torch.set_num_threads(settings.threads // self.processes)
        self._step = self._load()

    def each_step(self, schedule: Callable[[float], float]) -> Iterator[tuple[int, np.random.Generator]]:
        """Yields the remaining steps and sets the learning rates to their initial values times the schedule."""
        saved = time.monotonic()
        steps, first = range(self._step, self.steps), self._process == 0
        bar = tqdm(steps, self._name, self.steps, initial=self._step, mininterval=10, disable=not first)
        for step in bar:
            torch.manual_seed((self._seed * 1_000_003 + step) * self.processes + self._process)
            self._set_rates(schedule(step / self.steps))
            yield step, np.random.default_rng((self._seed, step, self._process))
            self._step = step + 1
            if first and self._step % LOG_EVERY == 0:
                bar.set_postfix({name: f"{value:.3f}" for name, value in self._averages.items()}, refresh=False)
                self._log()
            if first and time.monotonic() - saved > SAVE_EVERY:
                self.save()
                saved = time.monotonic()
        if first:
            self.save()

    def update(self, loss: Tensor, parameters: Iterable[nn.Parameter], clip: float, **values: Tensor) -> None:
        """Runs one step of all optimizers and adds ``values`` to the running averages of the log."""
        parameters = list(parameters)
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        loss.backward()
        if self.processes > 1:
            _average([p.grad for p in parameters if p.grad is not None])
        values["gradient"] = nn.utils.clip_grad_norm_(parameters, clip)
        for optimizer in self._optimizers:
            optimizer.step()
        self.record(**values)

    def record(self, **values: Tensor) -> None:
        for name, value in values.items():
            number = float(value.detach())
            self._averages[name] = 0.96 * self._averages.get(name, number) + 0.04 * number

    def save(self) -> None:
        state = {
            "step": self._step,
            "modules": self._modules.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        part = self.path.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, self.path)

    def _load(self) -> int:
        if not self.path.exists():
            return 0
        state = torch.load(self.path, "cpu", weights_only=True)
        self._modules.load_state_dict(state["modules"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        return int(state["step"])

    def _set_rates(self, factor: float) -> None:
        for optimizer, rates in zip(self._optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * factor

    def _log(self) -> None:
        line = {"step": self._step, **{name: round(value, 5) for name, value in self._averages.items()}}
        with self.path.with_suffix(".jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")


def on_device(step: Callable[[Settings], None]) -> Callable[[Settings], None]:
    """Decorates a step so that its tensors default to the device of the settings."""

    @functools.wraps(step)
    def run(settings: Settings) -> None:
        with torch.device(settings.device):
            step(settings)

    return run


def together(train: Callable[[Settings], None], settings: Settings) -> None:
    """Trains in one process per thread of the settings, which is faster on CPUs than threads of one process."""
    if settings.threads == 1 or settings.device != "cpu":
        train(settings)
        return
    with tempfile.TemporaryDirectory() as meeting:
        torch.multiprocessing.spawn(_join, (train, settings, meeting), settings.threads)


def _join(process: int, train: Callable[[Settings], None], settings: Settings, meeting: str) -> None:
    dist.init_process_group("gloo", f"file://{meeting}/store", rank=process, world_size=settings.threads)
    train(settings)
    dist.destroy_process_group()


def _average(gradients: list[Tensor]) -> None:
    """Averages the gradients over all processes."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    means = (flat / dist.get_world_size()).split([gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))


def trained(path: Path) -> dict[str, Tensor]:
    """Loads the parameters of a finished or stopped run.

    Raises:
        RuntimeError: the step that makes them has not been run.
    """
    if not path.exists():
        raise RuntimeError(f"{path} is missing: run the step before")
    modules: dict[str, Tensor] = torch.load(path, "cpu", weights_only=True)["modules"]
    return modules


def cosine(fraction: float, warm_up: float = 0.03, floor: float = 0.05) -> float:
    """Learning-rate factor: linear warm-up, then half a cosine down to ``floor``."""
    if fraction < warm_up:
        return fraction / warm_up + 1e-3
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (fraction - warm_up) / (1 - warm_up)))


def plateau(fraction: float, warm_up: float = 0.02, decay: float = 0.35, floor: float = 0.02) -> float:
    """Learning-rate factor: linear warm-up, a plateau, and linear decay to ``floor``."""
    return min(1.0, fraction / warm_up + 1e-3, floor + (1 - floor) * (1 - fraction) / decay)
