"""Plans the next engine request of a reply: how many turns it takes, and how much room it leaves for more."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from common.config import Config
from common.messages import Array, Priority, Sampling
from gateway.checkpoint.prompt import Prompts, Reference
from gateway.checkpoint.served_model import ServedModel
from gateway.engine.bounds import Bounds
from gateway.speech.turn_script import turn_rules

REST_SHARE = 0.6  # of the time for which the scheduler keeps an open request at rest
MARGIN = 4  # positions of the context that stay free, as the engine looks ahead
OVERHEAD = 24  # positions of a turn's prompt beside its text, about
COUNTED_BYTES = 300  # of text for which ``max_new_tokens`` counts: the longest chunk of Fish's own server


class Reply(NamedTuple):
    """Parameters shared by all engine requests of a reply.

    ``max_new_tokens``: maximum frames for each ``COUNTED_BYTES`` of text begun, as Fish counts them per chunk; 0: as
    the text allows.
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


class Plan(NamedTuple):
    """The next engine request: its turns as prompts, and the room that it leaves."""

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
        """Plan a request with as many of the texts as fit. ``more`` may follow.

        ``said``: bytes of the reply's text so far, these included; ``frames``: frames of it generated so far. The call
        tokenises, which may take long: see :mod:`gateway.http.offload`.
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
        """Add room for later turns, as far as the context allows: a second of sound takes frames and text."""
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
        """Return the frames that the request still allows for ``said`` bytes of text after ``generated`` frames."""
        most = self._reply.max_new_tokens
        if most == 0:
            return self._bounds.context
        return most * math.ceil(said / COUNTED_BYTES) - frames


def engine_bounds(config: Config, model: ServedModel) -> Bounds:
    """Bounds of engine requests. One at rest is closed well before the scheduler would give it up."""
    settings = config.gateway
    return Bounds(
        context=model.context,
        frame_rate=model.frame_rate,
        turns=model.defaults.turns,
        turn_bytes=turn_rules(model, settings).limit,
        floor_seconds=settings.min_frames_cap_seconds,
        seconds_per_byte=settings.seconds_per_byte_cap,
        seconds_per_digit=settings.seconds_per_digit_cap,
        open_seconds=settings.open_request_seconds,
        rest_seconds=REST_SHARE * config.scheduler.open_seconds,
    )
