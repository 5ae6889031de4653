"""A radix tree of KV pages whose contents several requests may share: voices, system text, beginnings of prompts.

A node is one full page, keyed by everything that its keys and values depend on: the token and all ten codes of each of
its positions, and, through its parents, of all positions before. Keys are compared whole, so there are no collisions.
"""

from __future__ import annotations

import heapq
from itertools import count

import numpy as np

from common.messages import Array


def page_keys(prompt: Array, page_size: int) -> list[bytes]:
    """The keys of the full pages of a prompt, int32 [11, positions], that leave at least one position to prefill."""
    pages = (prompt.shape[1] - 1) // page_size
    spans = (prompt[:, page * page_size : (page + 1) * page_size] for page in range(pages))
    return [np.ascontiguousarray(span).tobytes() for span in spans]


class Node:
    """A cached page. ``users``: requests that hold it; with a node, all nodes above it are held."""

    __slots__ = ("children", "key", "page", "parent", "used", "users")

    def __init__(self, key: bytes, page: int, parent: Node | None) -> None:
        self.key, self.page, self.parent = key, page, parent
        self.children: dict[bytes, Node] = {}
        self.users = 0
        self.used = 0


class PrefixCache:
    """The tree. ``idle`` counts the nodes that nobody holds: all of them can be evicted, leaves first."""

    def __init__(self) -> None:
        self._root = Node(b"", -1, None)
        self._clock = count(1)
        self._leaves: list[tuple[int, int, Node]] = []  # a heap; entries that are no longer true are skipped
        self.nodes = 0
        self.idle = 0

    def match(self, keys: list[bytes]) -> list[Node]:
        """The longest path of nodes with these keys."""
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
        """A request uses this path from now on."""
        for node in path:
            self.idle -= node.users == 0
            node.users += 1

    def let_go(self, path: list[Node]) -> None:
        """A request has done with this path."""
        for node in path:
            node.users -= 1
            node.used = next(self._clock)
            self.idle += node.users == 0
        if path:
            self._offer(path[-1])

    def extend(self, path: list[Node], key: bytes, page: int) -> Node | None:
        """Add a page behind a held path, and hold it; None when the tree has that content already."""
        parent = path[-1] if path else self._root
        if key in parent.children:
            return None
        node = Node(key, page, parent)
        node.users = 1
        parent.children[key] = node
        self.nodes += 1
        return node

    def evict(self) -> int:
        """Drop the least recently used leaf that nobody holds; its page.

        Raises:
            IndexError: there is none; ask :attr:`idle` first.
        """
        while True:
            used, _, node = heapq.heappop(self._leaves)
            if self._evictable(node) and node.used == used:
                break
        assert node.parent is not None, "the root is never offered"
        del node.parent.children[node.key]
        self.nodes -= 1
        self.idle -= 1
        self._offer(node.parent)
        return node.page

    def _evictable(self, node: Node) -> bool:
        return node.users == 0 and not node.children and node.parent is not None and node.key in node.parent.children

    def _offer(self, node: Node) -> None:
        if self._evictable(node):
            heapq.heappush(self._leaves, (node.used, node.page, node))
