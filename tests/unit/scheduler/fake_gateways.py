"""Fake gateways: record what the scheduler and the vocoder workers send, and check it."""

from __future__ import annotations

import numpy as np

from common.messages import (
    Array,
    Codes,
    DecodePlan,
    Encoded,
    Ended,
    Rested,
)
from tests.unit.scheduler.fake_workers import Job, codes_of


class FakeGateways:
    """All gateways together; a request belongs to one of them."""

    def __init__(self) -> None:
        self.cut: set[str] = set()  # requests of which sound may be lost on its way
        self.jobs: dict[str, Job] = {}
        self.sound: dict[str, int] = {}  # frames a gateway got as sound
        self.codes: dict[str, list[Array]] = {}
        self.rested: dict[str, Rested] = {}
        self.ended: dict[str, Ended] = {}
        self.encoded: dict[str, Encoded] = {}
        self.turn_starts: dict[str, list[int]] = {}  # of the frames that a gateway got
        self.open: set[str] = set()  # requests whose text goes on
        self.detached: list[str] = []  # vocoder workers to which a gateway is to attach again
        self.holes: set[str] = set()  # requests of which a gateway got frames after a hole, and dropped them

    def _hear(self, plan: DecodePlan) -> None:
        """Deliver the sound of a call. Gateways drop frames that they have, and accept no hole."""
        for item in plan.items:
            begin, end = max(item.first, item.heard), item.first + item.frames
            have = self.sound.get(item.request, 0)
            if begin > have and item.request in self.cut:
                self.holes.add(item.request)
                continue
            assert begin <= have or begin >= end, "no sound is left out"
            self.sound[item.request] = max(have, end) if begin < end else have
            self._note_turns(item.request, have, item.turn_starts)

    def _note_turns(self, request: str, have: int, starts: list[int]) -> None:
        self.turn_starts.setdefault(request, []).extend(start for start in starts if start >= have)

    def have(self, request: str) -> int:
        """Frames that the gateway got."""
        return self.sound.get(request, 0) + len(self.codes.get(request, []))

    def over(self, request: str) -> bool:
        """Return whether the gateway has all of a request."""
        ended = self.ended.get(request)
        return ended is not None and (ended.failure is not None or ended.frames == self.have(request))

    def _on_ended(self, body: Ended) -> None:
        before = self.ended.get(body.request)
        assert before is None or (before.failure is None and body.failure is not None), "a request ends once"
        self.ended[body.request] = body

    def _on_codes(self, body: Codes, codes: Array) -> None:
        offset = 0
        for span in body.spans:
            got = self.codes.setdefault(span.request, [])
            assert span.first == len(got)
            self._note_turns(span.request, len(got), span.turn_starts)
            got.extend(codes[offset : offset + span.frames])
            offset += span.frames

    def check_ended(self, request: str) -> None:
        """Check that a request that ended well has all of its own frames and no more."""
        ended, job = self.ended[request], self.jobs[request]
        if ended.failure is not None or ended.reason == "timeout":
            return
        expected = min(job.ends[-1], job.body.max_frames)
        assert ended.frames == expected
        assert ended.reason == ("stop" if job.ends[-1] < job.body.max_frames else "length")
        if job.body.output == "audio":
            assert self.sound.get(request, 0) == expected
        else:
            seed = job.body.sampling.seed
            assert len(self.codes[request]) == expected
            assert all(np.array_equal(code, codes_of(seed, n)) for n, code in enumerate(self.codes[request]))
