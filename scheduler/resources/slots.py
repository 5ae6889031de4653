"""Slots: numbered places in a worker's tensors, each leased to one request at a time."""

from __future__ import annotations

from typing import NamedTuple


class Lease(NamedTuple):
    """A leased slot. ``generation`` counts its earlier leases, so two leases of one slot differ."""

    slot: int
    generation: int


class SlotPool:
    """Leases the slots 0 to ``size`` - 1."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size - 1, -1, -1))
        self._generation = [0] * size

    @property
    def free(self) -> int:
        return len(self._free)

    def lease(self) -> Lease:
        """Lease a free slot.

        Raises:
            IndexError: no slot is free; check :attr:`free` first.
        """
        slot = self._free.pop()
        return Lease(slot, self._generation[slot])

    def release(self, lease: Lease) -> None:
        """End a lease.

        Raises:
            ValueError: the lease had ended before.
        """
        if self._generation[lease.slot] != lease.generation:
            raise ValueError(f"{lease} was released before")
        self._generation[lease.slot] += 1
        self._free.append(lease.slot)
