"""A record of the operations that reach PyTorch's dispatcher, with what a captured frame must not contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ar_worker.ops import Ops

VIEWS = frozenset(
    "view select slice split split_with_sizes unbind transpose unsqueeze expand permute detach alias t as_strided"
    " view_as_complex view_as_real squeeze _unsafe_view _reshape_alias".split()
)


class Recorder(TorchDispatchMode):
    """Records operations, views left out; :meth:`kernel` makes one operation of a function."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, tuple[object, ...]]] = []
        self._inside = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not self._inside and func.overloadpacket.__name__ not in VIEWS:
            self.add(str(func), out)
        return out

    def add(self, name: str, out: object) -> None:
        tensors = out if isinstance(out, tuple | list) else (out,)
        self.operations.append((name, tuple(item.shape for item in tensors if isinstance(item, Tensor))))

    @property
    def counts(self) -> Counter[str]:
        return Counter(name for name, _ in self.operations)

    @contextmanager
    def _one(self) -> Iterator[None]:
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with self._one():
                out = function(*args)
            self.add(function.__name__, out)
            return out

        return call

    def kernels(self) -> Ops:
        """The eager functions, each counted as one operation."""
        return Ops(*(self.kernel(function) for function in Ops()))


class NoHostReads(TorchDispatchMode):
    """Refuses what a graph can't hold and meta tensors hide: host tensors, random numbers, data-dependent indexing."""

    refused = frozenset(
        {"index", "index_put", "index_put_", "nonzero", "masked_select", "_local_scalar_dense", "lift_fresh"}
    )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        host = [item for item in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(item, Tensor)]
        if any(item.device.type == "cpu" for item in host):
            raise AssertionError(f"{func} has an argument on the host")
        random = torch.Tag.nondeterministic_seeded in func.tags and "scaled_dot_product" not in name  # no dropout there
        if name in self.refused or random:
            raise AssertionError(f"{func} in a frame")
        out = func(*args, **kwargs)
        for item in torch.utils._pytree.tree_leaves(out):
            if isinstance(item, Tensor) and item.device.type == "cpu":
                raise AssertionError(f"{func} makes a tensor on the host")
        return out
