"""The waiting queue: decides which request is admitted next.

Interactive requests take precedence over batch requests, unless those have waited long. Among equals the client with
the fewest running requests is next, so that under contention each client gets its share, and a lone client gets
everything. Within a client the order is that of arrival. The places of a full queue are shared in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from scheduler.requests.request import Request

BATCH_PATIENCE = 5.0  # seconds after which a batch request counts as interactive


class WaitingQueue:
    """Requests that wait for admission. ``running`` counts the admitted requests of each client."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, bool], dict[str, Request]] = {}  # (client, batch) to its requests by arrival
        self._requests: dict[str, Request] = {}
        self.running: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests.values()))  # a copy: requests may leave meanwhile

    def get(self, request_id: str) -> Request | None:
        return self._requests.get(request_id)

    def add(self, request: Request) -> None:
        self._requests[request.id] = request
        self._clients.setdefault((request.client, request.batch), {})[request.id] = request

    def remove(self, request_id: str) -> None:
        """Remove a request, if it is there."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            key = (request.client, request.batch)
            del self._clients[key][request_id]
            if not self._clients[key]:
                del self._clients[key]

    def gives_way(self, newcomer: Request) -> Request | None:
        """The request that loses its place in a full queue to a newcomer, or None: the newcomer has to go.

        The client with the most waiting requests gives up its latest one to a client with fewer, and files that are
        not streamed give way to a listener if they hold every place. Requests that have begun keep their places.
        """
        counts: Counter[str] = Counter(request.client for request in self._requests.values())
        greedy, most = counts.most_common(1)[0]
        if most > counts[newcomer.client] + 1:
            return next(
                (
                    request
                    for request in reversed(self._requests.values())
                    if request.client == greedy and not request.begun
                ),
                None,
            )
        if newcomer.streaming and not any(request.streaming for request in self._requests.values()):
            return next((request for request in reversed(self._requests.values()) if not request.begun), None)
        return None

    def next(self, now: float, able: Callable[[Request], bool]) -> Request | None:
        """The request to admit next. ``able``: whether a request can be served at all now; others are passed over."""
        heads = (next(filter(able, requests.values()), None) for requests in self._clients.values())
        present = (request for request in heads if request is not None)
        return min(present, key=lambda request: self._rank(request, now), default=None)

    def _rank(self, request: Request, now: float) -> tuple[bool, int, float]:
        after_interactive = request.batch and now - request.arrived < BATCH_PATIENCE
        return after_interactive, self.running[request.client], request.arrived
