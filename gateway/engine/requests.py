"""Requests under way as the gateway keeps them: enough for the next scheduler to continue each."""

from __future__ import annotations

import time

import msgspec
import numpy as np

from common.messages import PROMPT_ROWS, Array, Resume, Submit, Vocode
from gateway.engine.streams import Stream


class OpenRequest:
    """A request as it was submitted, what was added to it since, and its stream.

    ``scheduler``: the incarnation that has it. ``vocoder``: the one that its newest sound came from; "": none has come.
    """

    def __init__(self, body: Submit | Vocode, array: Array, stream: Stream, scheduler: str) -> None:
        """``array``: prompt int32 [11, positions], or codes int16 [frames, 10]."""
        self.stream = stream
        self.scheduler = scheduler
        self.vocoder = ""
        self.resumed = False  # more than one scheduler may know of it, or one that had forgotten it
        self.heard = time.monotonic()  # when anything of it came last
        self.asked = 0.0  # when it was resumed last
        self._body = body
        self._arrays = [array]
        self._extensions = 0
        self._resumes, self._resumed_at = 0, 0  # without progress, at this number of received frames

    @property
    def id(self) -> str:
        return self._body.request

    @property
    def audio(self) -> bool:
        return self.stream.output == "audio"

    def extend(self, turns: list[int], prompt: Array, last: bool) -> None:
        """Remember turns that were added. ``prompt``: int32 [11, positions]."""
        assert isinstance(self._body, Submit), "given codes have no turns"
        room = self._body.room - prompt.shape[1]
        self._body = msgspec.structs.replace(
            self._body, turns=[*self._body.turns, *turns], room=max(room, 0), open=not last
        )
        self._arrays.append(prompt)
        self._extensions += 1

    def resume(self) -> tuple[Resume, list[Array]]:
        """The message by which a scheduler continues it, and its arrays."""
        stream = self.stream
        if isinstance(self._body, Vocode):
            body = Resume(self._body, stream.received)
            return body, [*self._arrays, np.empty((0, 10), np.int16)]
        self._arrays = [np.concatenate(self._arrays, axis=1)]
        body = Resume(self._body, stream.received, self._extensions, stream.turn_starts)
        return body, [*self._arrays, stream.codes]

    def may_resume(self, most: int) -> bool:
        """Whether it was resumed fewer than ``most`` times since its newest frame; counts this time."""
        if self.stream.received != self._resumed_at:
            self._resumes, self._resumed_at = 0, self.stream.received
        self._resumes += 1
        return self._resumes <= most


def joined(prompts: list[Array]) -> Array:
    """Prompts int32 [11, positions] one after another; there may be none."""
    return np.concatenate([np.zeros((PROMPT_ROWS, 0), np.int32), *prompts], axis=1)
