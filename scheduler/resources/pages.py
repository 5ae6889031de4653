"""KV pages of one AR worker: who has them, which are shared, and when they may be used again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from scheduler.resources.prefix_cache import Node, PrefixCache


class _Release(NamedTuple):
    """Pages that wait for the steps in flight at their release."""

    last_step: int
    own: list[int]
    shared: list[Node]


class PagePool:
    """Numbers pages 0 to ``size`` - 1. A page is active (a sequence has it), cached (only the prefix cache), or free.

    A request reserves its worst case when it is admitted and takes pages one by one as it grows, so what is admitted
    can finish. Released pages may be used again only when every step that was in flight has been answered.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.reserved = 0  # promised, not yet taken
        self.cache = PrefixCache()
        self._free = deque(range(size))
        self._leaving: deque[_Release] = deque()

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    @property
    def cached(self) -> int:
        """Pages of prefixes that no sequence uses now."""
        return self.cache.idle

    @property
    def active(self) -> int:
        """Pages that a sequence has, or that a step in flight may still touch."""
        return self.size - self.free - self.cached

    @property
    def available(self) -> int:
        """Pages that can be promised to somebody new."""
        return self.free + self.cached - self.reserved

    def admit(self, keys: list[bytes], pages: int) -> list[Node] | None:
        """Hold the cached prefix of a prompt and promise the rest of its ``pages``; None when there are too few."""
        shared = self.cache.match(keys)
        self.cache.hold(shared)
        if pages - len(shared) > self.available:
            self.cache.let_go(shared)
            return None
        self.reserved += pages - len(shared)
        return shared

    def take(self) -> int:
        """Turn a promised page into a held one; the oldest unused prefix makes room."""
        self.reserved -= 1
        return self._free.popleft() if self._free else self.cache.evict()

    def share(self, shared: list[Node], keys: list[bytes], pages: list[int]) -> None:
        """Put the settled pages of a prompt into the cache. ``pages``: all of the sequence, ``shared`` being the first.

        Stops at content that the cache has from somebody else; the sequence then keeps its own pages.
        """
        for index in range(len(shared), len(keys)):
            node = self.cache.extend(shared, keys[index], pages[index])
            if node is None:
                break
            shared.append(node)

    def release(self, own: list[int], shared: list[Node], unused: int, last_step: int) -> None:
        """Give pages back, and ``unused`` promised ones. ``last_step``: the newest step in flight."""
        self.reserved -= unused
        self._leaving.append(_Release(last_step, own, shared))

    def settle(self, answered: int) -> None:
        """Step ``answered`` and all before it have been answered."""
        while self._leaving and self._leaving[0].last_step <= answered:
            release = self._leaving.popleft()
            self._free.extend(release.own)
            self.cache.let_go(release.shared)
