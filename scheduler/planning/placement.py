"""Placement: finds an AR slot, pages for the worst case and, for sound, a vocoder slot; all or nothing."""

from __future__ import annotations

from scheduler.planning.policy import Policy
from scheduler.requests.request import Request
from scheduler.resources.prefix_cache import page_keys
from scheduler.workers.ar_worker import ArWorker, Sequence
from scheduler.workers.pool import LOOK_AHEAD_POSITIONS, WorkerPool


class Placement:
    """Places requests on the workers of a pool. ``prefix_cache``: whether prompts may share pages."""

    def __init__(self, pool: WorkerPool, policy: Policy, prefix_cache: bool) -> None:
        self._pool = pool
        self._policy = policy
        self._prefix_cache = prefix_cache

    def able(self, request: Request) -> bool:
        """Return whether the present workers can serve the request as soon as there is room."""
        return not request.audio or bool(self._pool.reachable_vocoders(request.gateway))

    def place(self, request: Request) -> bool:
        """Give the request all the places that it needs; False, and none of them, if they are not to be had."""
        if request.audio and not any(worker.slots.free for worker in self._pool.reachable_vocoders(request.gateway)):
            return False
        if not request.vocode_only and not self.on_ar_worker(request):
            return False
        return not request.audio or self.on_vocoder(request)

    def on_vocoder(self, request: Request) -> bool:
        """Take a vocoder slot, on the worker with most free ones."""
        workers = self._pool.reachable_vocoders(request.gateway)
        if request.kills_vocoder:
            workers = [worker for worker in workers if not worker.has_suspect]
        worker = max(workers, key=lambda worker: worker.slots.free, default=None)
        if worker is None or not worker.slots.free:
            return False
        self._pool.streams[request.id] = worker.admit(request)
        return True

    def on_ar_worker(self, request: Request) -> bool:
        """Take an AR slot and pages, preferring workers with most of the prompt cached, then with most free slots."""
        able = [worker for worker in self._pool.ar_workers.values() if worker.slots.free and not worker.leaving]
        able = [worker for worker in able if self._policy.may_admit(worker)]
        if request.kills_ar:
            able = [worker for worker in able if not worker.has_suspect]
        if len(able) > 1:
            cached = {worker.incarnation: len(worker.pages.cache.match(self._keys(request, worker))) for worker in able}
            able.sort(key=lambda worker: (-cached[worker.incarnation], -worker.slots.free))
        return any(self._on(worker, request) for worker in able)

    def _keys(self, request: Request, worker: ArWorker) -> list[bytes]:
        return page_keys(request.history.turns[0], worker.page_size) if self._prefix_cache else []

    def _on(self, worker: ArWorker, request: Request) -> bool:
        history = request.history
        room = worker.context - request.prompt_tokens - LOOK_AHEAD_POSITIONS
        most_frames = min(request.max_frames, history.replayed + room)
        if most_frames <= history.frames:
            return False
        keys = self._keys(request, worker)
        to_come = most_frames - history.replayed + LOOK_AHEAD_POSITIONS
        worst_case = worker.pages_for(request.prompt_tokens + to_come)
        shared = worker.pages.admit(keys, worst_case)
        if shared is None:
            return False
        request.max_frames = most_frames
        sequence = Sequence(request, worker, keys, shared, worst_case)
        worker.admit(sequence)
        self._pool.sequences[request.id] = sequence
        return True
