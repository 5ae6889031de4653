"""Queue from a worker's I/O thread to its compute thread, which sleeps on a condition variable until there is work."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

LONGEST_DECAY = 0.95  # per item: one slow item does not count for long

T = TypeVar("T")


class InboxFullError(Exception):
    """More items wait than the protocol allows: the sender is broken."""


class Inbox(Generic[T]):
    """A bounded queue with one reader.

    ``arrived``: time.monotonic() at which the item that was got last had been put. ``longest_busy``: the most seconds
    that the reader has recently spent on one item.
    """

    def __init__(self, bound: int) -> None:
        self.arrived = 0.0
        self.longest_busy = 0.0
        self._busy_since: float | None = None
        self._bound = bound
        self._items: deque[tuple[T, float]] = deque()
        self._changed = threading.Condition()

    def put(self, item: T) -> None:
        """Append an item and wake the reader. Never waits.

        Raises:
            InboxFullError: the bound is reached.
        """
        with self._changed:
            if len(self._items) >= self._bound:
                raise InboxFullError(f"{self._bound} items wait already")
            self._items.append((item, time.monotonic()))
            self._changed.notify()

    def replace(self, item: T) -> None:
        """Drop all items that wait, append this one and wake the reader."""
        with self._changed:
            self._items.clear()
            self._items.append((item, time.monotonic()))
            self._changed.notify()

    def get(self) -> T:
        """The oldest item; sleeps until there is one."""
        with self._changed:
            self._rest()
            while not self._items:
                self._changed.wait()
            item, self.arrived = self._items.popleft()
            self._busy_since = time.monotonic()
            return item

    def goes_on(self) -> None:
        """Called by the reader when it begins work of its own, without an item."""
        self._rest()
        self._busy_since = time.monotonic()

    def _rest(self) -> None:
        self.longest_busy = max(LONGEST_DECAY * self.longest_busy, self.busy_seconds())
        self._busy_since = None

    def forget_busy(self) -> None:
        """Forget how long work took, now and before: the whole process stood still."""
        self.longest_busy = 0.0
        if self._busy_since is not None:
            self._busy_since = time.monotonic()

    def busy_seconds(self) -> float:
        """Seconds that the reader has spent on its present work; 0 while it waits for an item."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def __len__(self) -> int:
        return len(self._items)
