"""Finding a place for a request: AR slot, pages for the worst case and, for sound, vocoder slot; all or nothing."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.planning.policy import Policy
from scheduler.requests.request import Request
from scheduler.resources.prefix_cache import page_keys
from scheduler.resources.workers import ArWorker, VocoderWorker

LOOK_AHEAD_POSITIONS = 1  # a step sent before the end was known may write one position more


class Placement:
    """Places requests on workers. ``prefix_cache``: whether prompts may share pages."""

    def __init__(self, policy: Policy, prefix_cache: bool) -> None:
        self._policy = policy
        self._prefix_cache = prefix_cache

    def place(self, request: Request, ar_workers: Iterable[ArWorker], vocoders: list[VocoderWorker]) -> bool:
        """Give the request its places, if there are; ``vocoders``: those that its gateway can be reached from."""
        if request.audio and not any(worker.slots.free for worker in vocoders):
            return False
        if not request.given and not self.on_ar_worker(request, ar_workers):
            return False
        return not request.audio or self.on_vocoder(request, vocoders)

    def on_vocoder(self, request: Request, workers: list[VocoderWorker]) -> bool:
        """A vocoder slot, where most are free."""
        worker = max(workers, key=lambda worker: worker.slots.free, default=None)
        if worker is None or not worker.slots.free:
            return False
        worker.take(request)
        return True

    def on_ar_worker(self, request: Request, workers: Iterable[ArWorker]) -> bool:
        """An AR slot and pages: first where most of the prompt lies, then by free slots."""
        able = [worker for worker in workers if worker.slots.free and not worker.leaving]
        able = [worker for worker in able if self._policy.may_admit(worker)]
        if len(able) > 1:
            cached = {worker.incarnation: len(worker.pages.cache.match(self._keys(request, worker))) for worker in able}
            able.sort(key=lambda worker: (-cached[worker.incarnation], -worker.slots.free))
        return any(self._on(worker, request) for worker in able)

    def _keys(self, request: Request, worker: ArWorker) -> list[bytes]:
        return page_keys(request.turns[0], worker.page_size) if self._prefix_cache else []

    def _on(self, worker: ArWorker, request: Request) -> bool:
        room = worker.context - request.prompt_tokens - LOOK_AHEAD_POSITIONS
        most_frames = min(request.max_frames, request.replayed + room)
        if most_frames <= request.frames:
            return False
        keys = self._keys(request, worker)
        to_come = most_frames - request.replayed + LOOK_AHEAD_POSITIONS
        worst_case = worker.pages_for(request.prompt_tokens + to_come)
        shared = worker.pages.admit(keys, worst_case)
        if shared is None:
            return False
        request.max_frames, request.keys, request.shared = most_frames, keys, shared
        request.pages = [node.page for node in shared]
        request.reserved = worst_case - len(shared)
        request.position = request.prefilled = len(shared) * worker.page_size
        worker.take(request)
        return True
