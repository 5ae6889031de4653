"""A request as the scheduler sees it, from its arrival to its last sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from common.messages import PROMPT_ROWS, Array, FinishReason, Sampling, Submit, Vocode
from common.timeline import RequestRecord
from scheduler.prefix_cache import Node
from scheduler.slots import Lease

if TYPE_CHECKING:
    from scheduler.workers import ArWorker, VocoderWorker

CODEBOOKS = 10


class Request:
    """State of one request.

    Generation: ``turns`` are prefilled one after another on the same pages. ``position`` counts the KV positions
    planned so far, ``frames`` the frames received, ``planned`` those received or asked for. ``epoch`` grows when a
    turn ends, so that a row of an earlier epoch, asked for before the end was known, is recognised and dropped.

    Sound: ``handed`` frames were given to the vocoder, ``delivered`` have left it, ``read`` were read by the client.
    ``play_end`` is the time at which the sound delivered so far has been played by a listener who began at once.
    """

    def __init__(self, gateway: str, body: Submit, prompt: Array, arrived: float) -> None:
        self.id = body.request
        self.gateway = gateway
        self.audio = body.output == "audio"
        self.streaming = body.streaming and self.audio
        self.given = False  # the frames came with the request
        self.sampling = body.sampling
        self.max_frames = body.max_frames
        self.turns = _split(body.turns, prompt)  # int32 [11, positions] each
        self.open = body.open  # more turns may come
        self.prompt_tokens = prompt.shape[1] + body.room  # of all turns, those to come included
        self.resting_since: float | None = None  # all turns so far are spoken, and more may come
        self.arrived = arrived
        self.admitted = arrived  # until it really is
        self.record = RequestRecord(0, self.id, arrived, self.prompt_tokens)  # for the journal
        self.client = body.client
        self.batch = body.priority == "batch"
        self.deadline = None if body.deadline is None else arrived + body.deadline

        self.ar: ArWorker | None = None
        self.lease: Lease | None = None
        self.slot = -1  # of the lease
        self.keys: list[bytes] = []  # of the full pages of the first turn's prompt, for the worker's page size
        self.shared: list[Node] = []  # prefix-cache nodes, whose pages are the first of ``pages``
        self.pages: list[int] = []
        self.reserved = 0  # pages promised and not yet taken
        self.assigned = False  # the worker knows of it
        self.turn = 0
        self.prefilled = 0  # positions of this turn's prompt
        self.position = 0
        self.epoch = 0
        self.frames = 0
        self.planned = 0
        self.asked = arrived  # when the last frame was asked for
        self.reason: FinishReason | None = None
        self._codes = np.empty((64, CODEBOOKS), np.int16)

        self.vocoder: VocoderWorker | None = None
        self.vocoder_lease: Lease | None = None
        self.handed = 0
        self.delivered = 0
        self.read = 0
        self.play_end: float | None = None
        self.asked_sound = arrived  # when sound was last asked for

    @classmethod
    def of_codes(cls, gateway: str, body: Vocode, codes: Array, arrived: float) -> Request:
        """A request of which all frames are given, int16 [frames, 10], and only sound is wanted."""
        greedy = Sampling(temperature=0.0, fast_temperature=0.0, top_p=1.0, top_k=1, seed=0)
        submit = Submit(body.request, "audio", False, greedy, len(codes), [0], None, body.client)
        request = cls(gateway, submit, np.empty((PROMPT_ROWS, 0), np.int32), arrived)
        request.given = True
        request._codes, request.frames = codes.copy(), len(codes)
        return request

    @property
    def prompt_left(self) -> int:
        """Positions of this turn's prompt that are not yet in a step."""
        return self.turns[self.turn].shape[1] - self.prefilled

    @property
    def generated(self) -> bool:
        """Whether all frames are here."""
        return self.reason is not None

    @property
    def unspoken(self) -> int:
        """Frames not yet given to the vocoder."""
        return self.frames - self.handed

    def append(self, codes: Array) -> None:
        """Add a frame. ``codes``: int16 [10]."""
        if self.frames == len(self._codes):
            self._codes = np.concatenate([self._codes, np.empty_like(self._codes)])
        self._codes[self.frames] = codes
        self.frames += 1

    def codes(self, first: int, frames: int) -> Array:
        """Frames from ``first`` on, int16 [frames, 10]."""
        return self._codes[first : first + frames]

    def end_turn(self, position: int, now: float) -> bool:
        """A turn is spoken, and ``position`` is the first that holds nothing of it. False when it was the last turn.

        Otherwise the next turn begins, or the request rests until it comes.
        """
        if self.turn + 1 == len(self.turns) and not self.open:
            return False
        self.position = position
        self.epoch += 1
        self.planned = self.frames
        self.resting_since = now
        self._wake()
        return True

    def extend(self, turns: list[int], prompt: Array, last: bool) -> bool:
        """Add turns. Whether anything is left to speak; after ``last``, a request at rest may have ended by this."""
        self.turns.extend(_split(turns, prompt))
        self.open = not last
        if self.resting_since is not None:
            self._wake()
        return self.open or self.resting_since is None

    def _wake(self) -> None:
        if self.turn + 1 < len(self.turns):
            self.turn += 1
            self.prefilled = 0
            self.resting_since = None


def _split(turns: list[int], prompt: Array) -> list[Array]:
    return np.split(prompt, np.cumsum(turns)[:-1], axis=1) if turns else []
