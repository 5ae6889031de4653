"""What the next engine request of a reply is: how many turns it takes, and how much it leaves room for."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from common.messages import Array, Priority, Sampling
from gateway.speech.prompt import Prompts, Reference

MARGIN = 4  # positions of the context that stay free, as the engine looks ahead
OVERHEAD = 24  # positions of a turn's prompt beside its text, about
COUNTED_BYTES = 300  # of live text, for which ``max_new_tokens`` hold: the longest chunk of Fish's own server


class Reply(NamedTuple):
    """What holds for all engine requests of a reply.

    ``max_new_tokens``: frames of the whole reply, 0: as the text allows; of a ``live`` one, whose text has no end yet,
    for every ``COUNTED_BYTES`` of text that are begun.
    """

    request: str
    client: str
    output: Literal["audio", "codes"]
    streaming: bool
    sampling: Sampling
    max_new_tokens: int
    references: list[Reference]
    priority: Priority = "interactive"
    deadline: float | None = None  # seconds in which the first frame is wanted
    live: bool = False


class Bounds(NamedTuple):
    """What an engine request may take. ``turns``: of one request, None: as many as fit.

    ``open_seconds``: sound for which an open request has room; ``rest_seconds``: how long one is kept open at rest.
    """

    context: int
    frame_rate: float
    turns: int | None
    turn_bytes: int
    floor_seconds: float
    seconds_per_byte: float
    seconds_per_digit: float
    open_seconds: float
    rest_seconds: float

    def seconds(self, text: str) -> float:
        """The longest that a text may sound."""
        digits = sum(map(str.isdigit, text))
        return self.seconds_per_byte * (len(text.encode()) - digits) + self.seconds_per_digit * digits

    def frames(self, seconds: float) -> int:
        """The most frames of a text that may sound so long."""
        return min(math.ceil(max(self.floor_seconds, seconds) * self.frame_rate), self.context)


class Plan(NamedTuple):
    """The next engine request: its turns as prompts, and what it leaves room for."""

    prompts: list[Array]
    texts: list[str]
    frames: int
    room: int  # positions for turns to come; 0: it is not open
    seconds: float  # of sound that those may become


class Planner:
    """Plans the engine requests of one reply."""

    def __init__(self, prompts: Prompts, reply: Reply, bounds: Bounds) -> None:
        self._prompts, self._reply, self._bounds = prompts, reply, bounds

    def plan(self, texts: list[str], more: bool, said: int, frames: int) -> Plan:
        """As many of the texts as fit. ``more`` may follow. ``said``: bytes of the reply's text so far, these included;
        ``frames``: made of it already.

        It tokenises: see :func:`gateway.http.offload.aside`.
        """
        bounds, reply = self._bounds, self._reply
        prompts = self._prompts.build(texts[:1], reply.references)
        positions, seconds = prompts[0].shape[1], bounds.seconds(texts[0])
        for text in texts[1 : bounds.turns]:
            prompt = self._prompts.later(text)
            longer = seconds + bounds.seconds(text)
            if positions + prompt.shape[1] + bounds.frames(longer) + MARGIN > bounds.context:
                break
            prompts.append(prompt)
            positions, seconds = positions + prompt.shape[1], longer
        taken = texts[: len(prompts)]
        if more and bounds.turns is None and len(taken) == len(texts):
            return self._open(Plan(prompts, taken, 0, 0, seconds), positions, said, frames)
        return Plan(prompts, taken, min(bounds.frames(seconds), self.left(said, frames)), 0, 0.0)

    def _open(self, plan: Plan, positions: int, said: int, frames: int) -> Plan:
        """With room for turns to come, as far as the context has it: a second of sound takes frames and text."""
        bounds = self._bounds
        text_rate = 1 / bounds.seconds_per_byte + OVERHEAD / (bounds.seconds_per_byte * bounds.turn_bytes)
        room = bounds.context - positions - MARGIN - math.ceil(plan.seconds * bounds.frame_rate)
        more = min(bounds.open_seconds - plan.seconds, room / (bounds.frame_rate + text_rate))
        if more <= 0:
            return plan._replace(frames=min(bounds.frames(plan.seconds), self.left(said, frames)), seconds=0.0)
        left = self.left(said + math.ceil(more / bounds.seconds_per_byte), frames)
        most = min(bounds.frames(plan.seconds + more), left)
        return plan._replace(frames=most, room=int(more * text_rate), seconds=more)

    def left(self, said: int, frames: int) -> int:
        """Frames that the request still allows, for so many bytes of text, when so many have been made."""
        most = self._reply.max_new_tokens
        if most == 0:
            return self._bounds.context
        return most * (math.ceil(said / COUNTED_BYTES) if self._reply.live else 1) - frames
