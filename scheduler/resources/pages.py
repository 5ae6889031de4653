"""KV pages of one AR worker: allocation, sharing, and delayed reuse."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from scheduler.resources.prefix_cache import Node, PrefixCache


class _Release(NamedTuple):
    """Released pages that a step in flight may still touch."""

    last_step: int
    own: list[int]
    shared: list[Node]


class PagePool:
    """Pages 0 to ``size`` - 1. A page is active (used by a sequence), cached (only in the prefix cache), or free.

    A request reserves its worst case at admission and takes pages one by one as it grows, so every admitted request
    can finish. Released pages are reused only after every step that was in flight has been answered.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.reserved = 0  # promised and not yet taken
        self.cache = PrefixCache()
        self._free = deque(range(size))
        self._releases: deque[_Release] = deque()

    @property
    def free(self) -> int:
        """Number of pages that hold nothing."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Number of pages of prefixes that no sequence uses now."""
        return self.cache.idle

    @property
    def active(self) -> int:
        """Number of pages that a sequence uses or that a step in flight may still touch."""
        return self.size - self.free - self.cached

    @property
    def available(self) -> int:
        """Number of pages that can be promised to a new request."""
        return self.free + self.cached - self.reserved

    def admit(self, keys: list[bytes], pages: int) -> list[Node] | None:
        """Hold the cached prefix of a prompt and reserve the rest of its ``pages``; None if there are too few."""
        shared = self.cache.match(keys)
        self.cache.hold(shared)
        if pages - len(shared) > self.available:
            self.cache.release(shared)
            return None
        self.reserved += pages - len(shared)
        return shared

    def take(self) -> int:
        """Allocate a reserved page, evicting the least recently used prefix if none is free."""
        self.reserved -= 1
        return self._free.popleft() if self._free else self.cache.evict()

    def share(self, shared: list[Node], keys: list[bytes], pages: list[int]) -> None:
        """Add the settled pages of a prompt to the cache. ``pages``: all of the sequence's, beginning with ``shared``.

        Stops at content that the cache already has from another sequence; this one then keeps its own pages.
        """
        for index in range(len(shared), len(keys)):
            node = self.cache.extend(shared, keys[index], pages[index])
            if node is None:
                break
            shared.append(node)

    def release(self, own: list[int], shared: list[Node], unused: int, last_step: int) -> None:
        """Release pages and ``unused`` reserved ones. ``last_step``: the newest step in flight."""
        self.reserved -= unused
        self._releases.append(_Release(last_step, own, shared))

    def settle(self, answered: int) -> None:
        """Free what was released before step ``answered`` was sent; it and all earlier steps have been answered."""
        while self._releases and self._releases[0].last_step <= answered:
            release = self._releases.popleft()
            self._free.extend(release.own)
            self.cache.release(release.shared)
