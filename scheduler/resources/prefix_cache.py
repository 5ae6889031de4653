"""Prefix cache: a radix tree of KV pages that several requests may share (voices, system text, prompt beginnings).

A node is one full page, keyed by everything that its keys and values depend on: the token and all ten codes of each of
its positions and, through its parents, of all positions before. Whole keys are compared, so there are no collisions.
"""

from __future__ import annotations

import heapq
from itertools import count

import numpy as np

from common.messages import Array


def page_keys(prompt: Array, page_size: int) -> list[bytes]:
    """Keys of the full pages of a prompt, int32 [11, positions], leaving at least one position to prefill."""
    pages = (prompt.shape[1] - 1) // page_size
    spans = (prompt[:, page * page_size : (page + 1) * page_size] for page in range(pages))
    return [np.ascontiguousarray(span).tobytes() for span in spans]


class Node:
    """A cached page. ``users``: requests that hold it; whoever holds a node also holds all nodes above it."""

    __slots__ = ("children", "key", "offered", "page", "parent", "used", "users")

    def __init__(self, key: bytes, page: int, parent: Node | None) -> None:
        self.key, self.page, self.parent = key, page, parent
        self.children: dict[bytes, Node] = {}
        self.users = 0
        self.used = 0  # logical time of the last use
        self.offered = False  # it is in the eviction heap


class PrefixCache:
    """The tree. ``idle`` counts the nodes that no request holds: all of them can be evicted, leaves first."""

    def __init__(self) -> None:
        self._root = Node(b"", -1, None)
        self._clock = count(1)
        self._heap: list[tuple[int, int, Node]] = []  # eviction order; a node is in it at most once
        self.nodes = 0
        self.idle = 0

    def match(self, keys: list[bytes]) -> list[Node]:
        """Find the longest path of nodes with these keys."""
        path: list[Node] = []
        node = self._root
        for key in keys:
            child = node.children.get(key)
            if child is None:
                break
            path.append(child)
            node = child
        return path

    def hold(self, path: list[Node]) -> None:
        """Count one more user of this path."""
        for node in path:
            self.idle -= node.users == 0
            node.users += 1

    def release(self, path: list[Node]) -> None:
        """Count one user of this path less."""
        for node in path:
            node.users -= 1
            node.used = next(self._clock)
            self.idle += node.users == 0
        if path:
            self._offer(path[-1])

    def extend(self, path: list[Node], key: bytes, page: int) -> Node | None:
        """Add a page below a held path and hold it; None if the tree already has that content."""
        parent = path[-1] if path else self._root
        if key in parent.children:
            return None
        node = Node(key, page, parent)
        node.users = 1
        parent.children[key] = node
        self.nodes += 1
        return node

    def evict(self) -> int:
        """Evict the least recently used leaf that no request holds; returns its page.

        Raises:
            IndexError: there is none; check :attr:`idle` first.
        """
        node = self._pop()
        assert node.parent is not None, "the root is never offered"
        del node.parent.children[node.key]
        self.nodes -= 1
        self.idle -= 1
        self._offer(node.parent)
        return node.page

    def _pop(self) -> Node:
        """Take the eviction candidate out of the heap. An entry may be older than its node's last use: put it back."""
        while True:
            used, _, node = heapq.heappop(self._heap)
            node.offered = False
            if self._evictable(node):
                if node.used == used:
                    return node
                self._offer(node)

    def _evictable(self, node: Node) -> bool:
        return node.users == 0 and not node.children and node.parent is not None

    def _offer(self, node: Node) -> None:
        if not node.offered and self._evictable(node):
            node.offered = True
            heapq.heappush(self._heap, (node.used, node.page, node))
