"""Records of a scheduler's recent work, which gateways ask for.

All times are seconds of the monotonic clock, which all processes of a machine share. Work of workers is timed by the
scheduler's clock as well, so workers on other machines need no synchronised clock.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from common.messages import FinishReason

PAGE = "/timeline"
"""Path at the scheduler's metrics port, with a window ``?since=…&until=…``."""

WORK = "work"
"""A further parameter, of any value: asks for steps and calls as well."""


class RequestRecord(Struct, array_like=True):
    """An engine request. Times that have not come are None. ``number`` identifies it in steps and calls.

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
    """A step of an AR worker, from its begin (sent, and the step before it answered) to its answer.

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


class SchedulerRecords(Struct, array_like=True, frozen=True):
    """Requests, steps and calls of a window of time."""

    requests: list[RequestRecord]
    steps: list[StepRecord]
    calls: list[CallRecord]


NOTHING = SchedulerRecords([], [], [])

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SchedulerRecords)


def encode(recent: SchedulerRecords) -> bytes:
    return _encoder.encode(recent)


def decode(data: bytes) -> SchedulerRecords:
    """Decode what :func:`encode` returned.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    return _decoder.decode(data)
