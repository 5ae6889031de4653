"""Muon: momentum with matrices orthogonalized before each step (Jordan et al., 2024).

PyTorch's own computes the orthogonalization in bfloat16, for which many CPUs have no instructions; this one keeps the
type of the parameters, and takes matrices of one shape together.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic Newton-Schulz iteration
ITERATIONS = 4


def orthogonalized(matrices: Tensor) -> Tensor:
    """The nearest matrices with singular values of about one. [n, rows, columns] to the same"""
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.transpose(1, 2)
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.transpose(1, 2)


class Muon(Optimizer):
    """Optimizer for matrices. Its step has the size of AdamW's, so both can share one learning rate."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.03):
        ordered = sorted(matrices, key=lambda p: p.shape)
        super().__init__(ordered, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]  # no closure
        for group in self.param_groups:
            for shape, alike in groupby(group["params"], key=lambda p: p.shape):
                parameters = list(alike)
                updates = orthogonalized(torch.stack([self._momentum(p, group["momentum"]) for p in parameters]))
                size = 0.2 * max(shape) ** 0.5
                for parameter, update in zip(parameters, updates, strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(update, alpha=-group["lr"] * size)

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """Nesterov's momentum of the gradient."""
        gradient = parameter.grad
        assert gradient is not None
        kept: Tensor = self.state[parameter].setdefault("momentum", torch.zeros_like(gradient))
        kept.lerp_(gradient, 1 - momentum)
        return gradient.lerp(kept, momentum)
