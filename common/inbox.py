"""The queue between a worker's I/O thread and its compute thread, which sleeps on a condition until there is work."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class InboxFullError(Exception):
    """More items than the protocol allows to be outstanding: the sender is broken."""


class Inbox(Generic[T]):
    """A bounded queue with one reader. Putting never waits; getting waits on a condition variable.

    ``arrived`` is the time (time.monotonic()) at which the item got last was put.
    """

    def __init__(self, bound: int) -> None:
        self.arrived = 0.0
        self._busy_since: float | None = None
        self._bound = bound
        self._items: deque[tuple[T, float]] = deque()
        self._changed = threading.Condition()

    def put(self, item: T) -> None:
        """Append an item and wake the reader.

        Raises:
            InboxFullError: the bound is reached.
        """
        with self._changed:
            if len(self._items) >= self._bound:
                raise InboxFullError(f"{self._bound} items wait already")
            self._items.append((item, time.monotonic()))
            self._changed.notify()

    def get(self) -> T:
        """The oldest item; sleeps until there is one."""
        with self._changed:
            self._busy_since = None
            while not self._items:
                self._changed.wait()
            item, self.arrived = self._items.popleft()
            self._busy_since = time.monotonic()
            return item

    def goes_on(self) -> None:
        """For the reader, which got no item and has begun something of its own."""
        self._busy_since = time.monotonic()

    def busy_seconds(self) -> float:
        """How long the reader has been at what it is doing; 0 while it waits for an item."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def __len__(self) -> int:
        return len(self._items)
