"""Slots: numbered places in a worker's tensors, each lent to one request at a time."""

from __future__ import annotations

from typing import NamedTuple


class Lease(NamedTuple):
    """A slot, and how many times it had been lent before: two leases of one slot differ."""

    slot: int
    generation: int


class SlotPool:
    """Lends the slots 0 to ``size`` - 1."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size - 1, -1, -1))
        self._generation = [0] * size

    @property
    def free(self) -> int:
        return len(self._free)

    def lend(self) -> Lease:
        """Lend a free slot.

        Raises:
            IndexError: none is free; ask :attr:`free` first.
        """
        slot = self._free.pop()
        return Lease(slot, self._generation[slot])

    def give_back(self, lease: Lease) -> None:
        """Take a lease back.

        Raises:
            ValueError: it was given back before.
        """
        if self._generation[lease.slot] != lease.generation:
            raise ValueError(f"{lease} was given back before")
        self._generation[lease.slot] += 1
        self._free.append(lease.slot)
