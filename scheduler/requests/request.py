"""A request as the scheduler sees it, from its arrival to its last sample."""

from __future__ import annotations

import numpy as np

from common.messages import PROMPT_ROWS, Array, FinishReason, Resume, Sampling, Submit, Vocode
from scheduler.requests.history import History, split_turns
from scheduler.requests.losses import Losses
from scheduler.requests.playback import Playback


class Request:
    """Parameters of a request, and the state of its life, which the registry changes.

    ``history`` has its turns and frames, changed by results of steps and by recovery; ``playback`` its sound, changed
    by calls and credit. Its place on a worker is a :class:`scheduler.workers.ar_worker.Sequence` and a
    :class:`scheduler.workers.vocoder_worker.Stream`.
    """

    def __init__(self, gateway: str, body: Submit, prompt: Array, arrived: float) -> None:
        self.id = body.request
        self.gateway = gateway
        self.client = body.client
        self.batch = body.priority == "batch"
        self.audio = body.output == "audio"
        self.streaming = body.streaming and self.audio
        self.vocode_only = False  # the frames came with the request
        self.sampling = body.sampling
        self.max_frames = body.max_frames
        self.prompt_tokens = prompt.shape[1] + body.room  # of all turns, including those to come
        self.arrived = arrived
        self.deadline = None if body.deadline is None else arrived + body.deadline
        self.history = History(split_turns(body.turns, prompt))
        self.playback = Playback(arrived)

        self.number = 0  # running number in this scheduler
        self.queued_behind = 0  # requests that waited when it arrived
        self.admitted_at: float | None = None
        self.first_frame_at: float | None = None  # when its first frame, or end, was drawn
        self.open = body.open  # more turns may come
        self.extensions = 0
        self.resting_since: float | None = None  # all turns so far are spoken, and more may come
        self.reason: FinishReason | None = None
        self.interrupted = False  # by a fault, since its newest sound
        self.ar_losses = Losses()
        self.vocoder_losses = Losses()
        self.resends = Losses()  # of sound on its way to the gateway

    @classmethod
    def of_codes(cls, gateway: str, body: Vocode, codes: Array, arrived: float) -> Request:
        """A request for the sound of given frames, int16 [frames, 10]."""
        greedy = Sampling(temperature=0.0, fast_temperature=0.0, top_p=1.0, top_k=1, seed=0)
        submit = Submit(body.request, "audio", False, greedy, len(codes), [0], None, body.client)
        request = cls(gateway, submit, np.empty((PROMPT_ROWS, 0), np.int32), arrived)
        request.vocode_only = True
        request.history = History(request.history.turns, codes.astype(np.int16).tobytes())
        return request

    @classmethod
    def resumed(cls, gateway: str, body: Resume, arrays: list[Array], now: float) -> Request:
        """A request of which the gateway has frames by another scheduler. ``arrays``: see :class:`Resume`."""
        if isinstance(body.what, Vocode):
            request = cls.of_codes(gateway, body.what, arrays[0], now)
        else:
            request = cls(gateway, body.what, arrays[0], now)
            request.history = History.received(request.history.turns, arrays[1], body.turn_starts)
            request.extensions = body.extensions
        playback = request.playback
        playback.delivered = playback.read = body.received if request.audio else 0
        playback.play_end = now if body.received else None  # the listener may have nothing left to play
        return request

    @property
    def frames(self) -> int:
        """Frames received so far."""
        return self.history.frames

    @property
    def begun(self) -> bool:
        """Return whether the client has received anything, or frames would be lost."""
        return self.playback.delivered > 0 or (self.frames > 0 and not self.vocode_only)

    @property
    def generated(self) -> bool:
        """Return whether all frames have been received."""
        return self.reason is not None

    @property
    def resting(self) -> bool:
        return self.resting_since is not None

    @property
    def unsent(self) -> int:
        """Frames not yet sent to the vocoder."""
        return self.history.frames - self.playback.sent

    @property
    def kills_ar(self) -> bool:
        """Return whether the request is suspected of killing AR workers."""
        return self.ar_losses.suspect(self.history.frames)

    @property
    def kills_vocoder(self) -> bool:
        """Return whether the request is suspected of killing vocoder workers."""
        return self.vocoder_losses.suspect(self.playback.delivered)

    def finish_turn(self, now: float) -> bool:
        """End the current turn: begin the next one, or rest until it comes. False if it was the last."""
        if not self.history.has_next_turn and not self.open:
            return False
        self.resting_since = now
        self._wake()
        return True

    def extend(self, turns: list[int], prompt: Array, last: bool) -> bool:
        """Add turns. False if nothing is left to speak: a resting request was told that no more turns come."""
        self.history.turns.extend(split_turns(turns, prompt))
        self.extensions += 1
        self.open = not last
        if self.resting:
            self._wake()
        return self.open or not self.resting

    def _wake(self) -> None:
        if self.history.has_next_turn:
            self.history.next_turn()
            self.resting_since = None
