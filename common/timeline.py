"""What a scheduler remembers of its recent work, as it tells a gateway that asks.

All times are seconds of the monotonic clock, which is one for all processes of a machine. What workers did is told by
the scheduler's clock too, so that a worker on another machine needs none that agrees with it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from common.messages import FinishReason

PAGE = "/timeline"
"""Where the scheduler's metrics port has it, for the window ``?since=…&until=…``."""

WORK = "work"
"""A further parameter, whatever its value: it asks for steps and calls too."""


class RequestRecord(Struct, array_like=True):
    """An engine request; a time is None before it has come. ``number`` stands for it in steps and calls.

    ``prefill``: when its first span of prompt was sent to ``ar_worker``; ``first_codes``, ``generated``: when its first
    and last frame were back; ``first_call``: when its first frames were sent to ``vocoder_worker``; ``sounded``: when
    that had last answered, after ``calls`` so far; ``ended``: when the scheduler was done with it.
    """

    number: int
    request: str
    queued: float
    prompt_tokens: int
    admitted: float | None = None
    cached_tokens: int = 0
    ar_worker: str = ""
    vocoder_worker: str = ""
    prefill: float | None = None
    first_codes: float | None = None
    generated: float | None = None
    first_call: float | None = None
    sounded: float | None = None
    calls: int = 0
    frames: int = 0
    ended: float | None = None
    reason: FinishReason | None = None


class StepRecord(Struct, array_like=True, frozen=True):
    """A step of an AR worker, from when it was its turn (sent, and the one before answered) to its answer.

    ``seconds``: of the device. ``requests``: for which a frame was drawn; ``prompts``: of which it had spans of prompt.
    """

    worker: str
    number: int
    began: float
    answered: float
    seconds: float
    prompt_tokens: int
    requests: list[int]
    prompts: list[int]


class CallItem(Struct, array_like=True, frozen=True):
    """Frames ``first`` to ``first + frames`` of a request."""

    request: int
    first: int
    frames: int


class CallRecord(Struct, array_like=True, frozen=True):
    """A vocoder call, from when it was sent to its answer; ``seconds``: of the device."""

    worker: str
    number: int
    began: float
    answered: float
    seconds: float
    items: list[CallItem]


class Recent(Struct, array_like=True, frozen=True):
    """What was under way in a window of time."""

    requests: list[RequestRecord]
    steps: list[StepRecord]
    calls: list[CallRecord]


NOTHING = Recent([], [], [])

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Recent)


def encode(recent: Recent) -> bytes:
    return _encoder.encode(recent)


def decode(data: bytes) -> Recent:
    """What :func:`encode` wrote.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    return _decoder.decode(data)
