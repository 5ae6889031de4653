"""A request as the scheduler sees it, from its arrival to its last sample."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from common.messages import PROMPT_ROWS, REPETITION_WINDOW, Array, FinishReason, Sampling, Submit, Vocode
from common.timeline import RequestRecord
from scheduler.resources.prefix_cache import Node
from scheduler.resources.slots import Lease

if TYPE_CHECKING:
    from scheduler.resources.workers import ArWorker, VocoderWorker

CODEBOOKS = 10


class Request:
    """State of one request.

    Generation: ``turns`` are prefilled one after another on the same pages. ``position`` counts the KV positions
    planned so far, ``frames`` the frames received, ``planned`` those received or asked for. ``epoch`` grows when a
    turn ends, so that a row of an earlier epoch, asked for before the end was known, is recognised and dropped. After
    the loss of a worker the first of ``turns`` is all that was said so far, ``replayed`` frames included.

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
        self.extended = 0  # times
        self.prompt_tokens = prompt.shape[1] + body.room  # of all turns, those to come included
        self.resting_since: float | None = None  # all turns so far are spoken, and more may come
        self.arrived = arrived
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
        self.recent: list[int] | None = None  # main tokens drawn in this turn by a worker that was lost
        self.prefilled = 0  # positions of this turn's prompt
        self.position = 0
        self.epoch = 0
        self.frames = 0
        self.planned = 0
        self.asked = arrived  # when the last frame was asked for
        self.reason: FinishReason | None = None
        self._codes = bytearray()  # int16 [frames, 10]: a row is added in a tenth of the time that an array takes
        self.losses = 0  # of a worker, at ``lost_at`` and no further
        self.lost_at = -1
        self._behind = [0]  # number of the first frame drawn behind each turn's prompt
        self._turn_began = 0  # frames when this turn began

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
        request._codes, request.frames = bytearray(codes.astype(np.int16).tobytes()), len(codes)
        return request

    @property
    def prompt_left(self) -> int:
        """Positions of this turn's prompt that are not yet in a step."""
        return self.turns[self.turn].shape[1] - self.prefilled

    @property
    def replayed(self) -> int:
        """Frames that are part of the first prompt."""
        return self._behind[0]

    @property
    def progress(self) -> int:
        """Frames drawn and frames delivered: grows with all that is done for the request."""
        return self.frames + self.delivered

    @property
    def lacks_ar(self) -> bool:
        return self.ar is None and self.reason is None

    @property
    def lacks_vocoder(self) -> bool:
        return self.vocoder is None and self.audio

    @property
    def generated(self) -> bool:
        """Whether all frames are here."""
        return self.reason is not None

    @property
    def unspoken(self) -> int:
        """Frames not yet given to the vocoder."""
        return self.frames - self.handed

    def append(self, codes: bytes) -> None:
        """Add a frame. ``codes``: those of int16 [10]."""
        self._codes += codes
        self.frames += 1

    def codes(self, first: int, frames: int) -> Array:
        """Frames from ``first`` on, int16 [frames, 10]."""
        row = CODEBOOKS * 2  # bytes
        return np.frombuffer(bytes(self._codes[first * row : (first + frames) * row]), np.int16).reshape(-1, CODEBOOKS)

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
        self.extended += 1
        self.open = not last
        if self.resting_since is not None:
            self._wake()
        return self.open or self.resting_since is None

    def _wake(self) -> None:
        if self.turn + 1 < len(self.turns):
            self.turn += 1
            self.prefilled = 0
            self.resting_since = None
            self.recent = None
            self._behind.append(self.frames)
            self._turn_began = self.frames

    # When a worker is lost -------------------------------------------------------------------------------------------

    def leave_lost_ar(self, semantic_begin: int) -> None:
        """Its AR worker is gone with slot and pages: another can go on behind a prompt of all that was said so far.

        ``semantic_begin``: main token of a frame whose first code is 0.
        """
        drawn = self.codes(self._turn_began, self.frames - self._turn_began)[:, 0] + np.int32(semantic_begin)
        self.recent = drawn[1:][-REPETITION_WINDOW:].tolist() if drawn.size else None
        self.prompt_tokens += self.frames - self.replayed
        self.turns = [self._history(semantic_begin), *self.turns[self.turn + 1 :]]
        self._behind = [self.frames]
        self.ar = self.lease = None
        self.slot, self.turn, self.prefilled, self.position, self.reserved = -1, 0, 0, 0, 0
        self.shared, self.pages, self.assigned = [], [], False
        self.epoch += 1
        self.planned = self.frames

    def _history(self, semantic_begin: int) -> Array:
        """The turns up to this one, each with the frames drawn behind it. int32 [11, positions]"""
        parts: list[Array] = []
        for turn, (first, end) in zip(self.turns, itertools.pairwise([*self._behind, self.frames]), strict=False):
            codes = self.codes(first, end - first).T.astype(np.int32)
            parts += [turn, np.concatenate([codes[:1] + semantic_begin, codes])]
        return np.concatenate(parts, axis=1)

    def leave_lost_vocoder(self) -> None:
        """Its vocoder worker is gone with the stream's state: another has to decode all frames once more."""
        self.vocoder = self.vocoder_lease = None
        self.handed = 0


def _split(turns: list[int], prompt: Array) -> list[Array]:
    return np.split(prompt, np.cumsum(turns)[:-1], axis=1) if turns else []
