"""KV pages of one AR worker: who has them, and when they may be used again."""

from __future__ import annotations

from collections import deque


class PagePool:
    """Numbers pages 0 to ``size`` - 1.

    A request reserves its worst case when it is admitted and takes pages one by one as it grows, so what is admitted
    can finish. Released pages are free again only when every step that was in flight has been answered.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.reserved = 0  # promised, not yet taken
        self._free = deque(range(size))
        self._leaving: deque[tuple[int, list[int]]] = deque()  # (last step in flight at the release, pages)

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    @property
    def active(self) -> int:
        """Pages that a sequence holds, or that a step in flight may still touch."""
        return self.size - len(self._free)

    @property
    def available(self) -> int:
        """Pages that can be promised to somebody new."""
        return len(self._free) - self.reserved

    def reserve(self, pages: int) -> bool:
        """Promise pages; False when there are not so many."""
        if pages > self.available:
            return False
        self.reserved += pages
        return True

    def take(self) -> int:
        """Turn a promised page into a held one."""
        self.reserved -= 1
        return self._free.popleft()

    def release(self, pages: list[int], unused: int, last_step: int) -> None:
        """Give pages back, and ``unused`` promised ones. ``last_step``: the newest step in flight."""
        self.reserved -= unused
        self._leaving.append((last_step, pages))

    def settle(self, answered: int) -> None:
        """Step ``answered`` and all before it have been answered."""
        while self._leaving and self._leaving[0][0] <= answered:
            self._free.extend(self._leaving.popleft()[1])
