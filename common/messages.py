"""All messages between the four processes, and their encoding as frames on the wire.

A message is a multipart ZeroMQ message: one msgpack header (:class:`Header`) that holds the typed body and describes
the arrays, then one raw contiguous frame per array. Arrays arrive as read-only NumPy views of the received frames.
Unknown fields, other versions and frames of the wrong size are refused with :class:`MessageError`.

``source`` and ``target`` are incarnations: a fresh id for each life of a process. The receiver drops messages from or
for an earlier life. Plans and their answers also carry the ``registration`` of the worker that they
belong to: one process may register several times (it stalled and was given up), and late answers are dropped.

Shapes: T positions of a prompt, 11 rows (the token and its ten codes), n rows of a step, 10 codebooks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import zmq
from msgspec import Struct

PROTOCOL_VERSION = 3
PROMPT_ROWS = 11
REPETITION_WINDOW = 10  # main tokens that the repetition rule looks back on

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Role: TypeAlias = Literal["gateway", "ar_worker", "vocoder_worker"]
Priority: TypeAlias = Literal["interactive", "batch"]
FinishReason: TypeAlias = Literal["stop", "length", "cancelled", "slow_client", "timeout", "rejected", "error"]


class MessageError(ValueError):
    """Frames that are not a message of this version."""


class Body(Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Base of all message bodies; the class name is the tag."""


# Any peer and the scheduler -------------------------------------------------------------------------------------------


class GatewayHello(Body, frozen=True):
    """A gateway registers; it has no request in flight."""

    name: str


class ArWorkerHello(Body, frozen=True):
    """An AR worker registers, loaded and warm, with empty slots."""

    name: str
    slots: int
    pages: int
    page_size: int
    context: int  # most positions of one sequence
    semantic_begin: int  # main token of a frame whose first code is 0
    max_prefill_tokens: int = 2**31 - 1  # prompt positions of one step


class VocoderWorkerHello(Body, frozen=True):
    """A vocoder worker registers, loaded and warm. Gateways connect to ``audio_endpoint`` for the sound."""

    name: str
    slots: int
    audio_endpoint: str


class Welcome(Body, frozen=True):
    """The scheduler's answer to a hello; tells the peer its incarnation."""


class Disowned(Body, frozen=True):
    """The scheduler does not know the peer (any more): the peer must forget its state and register again."""


class Ping(Body, frozen=True):
    """Sent by the scheduler at a fixed interval; a failure to send it reveals at once that a peer is gone."""


class Pong(Body, frozen=True):
    pass


class Leaving(Body, frozen=True):
    """A worker was asked to stop: it takes nothing new, and ends when the scheduler sends :class:`Shutdown`."""


class Shutdown(Body, frozen=True):
    """The scheduler has no more work for this worker."""


# Gateway and scheduler ------------------------------------------------------------------------------------------------


class Sampling(Struct, frozen=True, forbid_unknown_fields=True):
    """Sampling of one request. A temperature of 0 is greedy. ``fast_temperature`` holds for codebooks 1 to 9."""

    temperature: float
    fast_temperature: float
    top_p: float
    top_k: int
    seed: int


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a request failed, for the client: an HTTP status, a code, a sentence, and when to try again."""

    status: int
    code: str
    message: str
    retry_after: int | None = None  # seconds


class Submit(Body, frozen=True):
    """A request. Array: prompt int32 [11, T], the turns one after another, ``turns`` positions each.

    The first turn is the whole beginning of the conversation; each later one is the prompt between the codes of the
    previous turn and its own. ``max_frames`` bounds the frames of all turns together. ``deadline``: seconds from
    arrival within which the first sound must come; None: no deadline. ``client``: whose fair share the request uses.
    """

    request: str
    output: Literal["audio", "codes"]
    streaming: bool
    sampling: Sampling
    max_frames: int
    turns: list[int]
    deadline: float | None
    client: str = ""
    priority: Priority = "interactive"
    open: bool = False  # more turns may follow, by Extend, of up to ``room`` positions in all
    room: int = 0


class Extend(Body, frozen=True):
    """More turns for an open request, which ``last`` closes. Array: prompt int32 [11, T], as in Submit.

    Between turns the request keeps its slot for a bounded time.
    """

    request: str
    turns: list[int]
    last: bool


class Vocode(Body, frozen=True):
    """Make sound of given codes. Array: codes int16 [frames, 10]. Ends like any request."""

    request: str
    client: str = ""


class Resume(Body, frozen=True):
    """A request goes on after a fault that lost its scheduler, or frames on their way to the gateway.

    ``what`` is the request with the turns of every :class:`Extend` since, ``extensions`` of them. The gateway has
    ``received`` of its frames, and the codes that they were made of; ``turn_starts``: as in :class:`FrameSpan`, of all
    received frames. Arrays: that of ``what``, and the codes int16 [received, 10] (for :class:`Vocode` none of them).
    A scheduler that knows the request sends again what was lost; another one takes it over.
    """

    what: Submit | Vocode
    received: int
    extensions: int = 0
    turn_starts: list[int] = []


class Cancel(Body, frozen=True):
    """The client of a request is gone or was too slow."""

    request: str
    reason: FinishReason


class Credit(Body, frozen=True):
    """Frames up to which clients have read. Cumulative: may come late, twice, or out of order."""

    read: list[tuple[str, int]]


class EncodeAudio(Body, frozen=True):
    """Encode reference audio. Array: samples float32 [samples] at the codec's rate, within -1 and 1."""

    request: str
    registration: int = 0


class FrameSpan(Struct, frozen=True, forbid_unknown_fields=True):
    """``frames`` frames of a request, from frame number ``first`` (counted from 0) on.

    ``turn_starts``: for each turn after the first that begins in the span, the number of its first frame. A turn that
    has no frames begins where the next one does.
    """

    request: str
    first: int
    frames: int
    turn_starts: list[int] = []


class Codes(Body, frozen=True):
    """Codes of requests that asked for codes. Array: int16 [sum of frames, 10], span after span."""

    spans: list[FrameSpan]


class Rested(Body, frozen=True):
    """All turns of an open request, extended so many times, are spoken in ``frames`` frames."""

    request: str
    frames: int
    extended: int


class Ended(Body, frozen=True):
    """A request has ended with ``frames`` frames in all; those still on their way belong to it."""

    request: str
    reason: FinishReason
    frames: int
    failure: Failure | None = None


class Encoded(Body, frozen=True):
    """Codes of reference audio, or why there are none. Array: int16 [10, frames] (none with a failure)."""

    request: str
    failure: Failure | None = None
    registration: int = 0


class VocoderAddress(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    incarnation: str
    endpoint: str


class GroupState(Body, frozen=True):
    """State of the group, sent to gateways at each change. ``processes``: states by name."""

    ready: bool
    processes: dict[str, str]
    vocoders: list[VocoderAddress]


class Attached(Body, frozen=True):
    """This gateway can receive sound from that vocoder worker."""

    vocoder: str


class Detached(Body, frozen=True):
    """The vocoder worker could not reach this gateway, which is to attach to it again."""

    vocoder: str


# Scheduler and AR worker ----------------------------------------------------------------------------------------------


class Assign(Struct, frozen=True, forbid_unknown_fields=True):
    """Starts a new sequence in a slot, with empty page table, window and counters."""

    slot: int
    sampling: Sampling


class Prefill(Struct, frozen=True, forbid_unknown_fields=True):
    """``tokens`` prompt positions of a slot from position ``start`` on; ``sample``: the last one yields a frame.

    ``frame`` is the number of that frame. It begins a turn, with an empty repetition window, unless ``recent`` has the
    main tokens that are in the window: then a turn goes on whose frames so far are the end of the prompt. ``turn``
    counts the ends before: noise depends on ``frame + turn``, so that the draw of an end shares it with no other draw.
    """

    slot: int
    start: int
    tokens: int
    sample: bool
    frame: int = 0
    recent: list[int] | None = None
    turn: int = 0


class StepPlan(Body, frozen=True):
    """One step. Order of effect: release, assign, page appends, prefills and decodes.

    Arrays: prompt int32 [11, sum of prefill tokens]; decode slots int32 [d]; page appends int32 [p, 3] (slot, index in
    the slot's page table, page). A decode feeds the slot's last frame at its next position and yields the next frame.
    """

    step: int
    released: list[int]
    assigned: list[Assign]
    prefills: list[Prefill]
    registration: int = 0


class StepDone(Body, frozen=True):
    """The result of a plan. Arrays: codes int16 [n, 10]; ended uint8 [n], 1 where the end token was drawn (the codes of
    such a row are not a frame). Rows: prefills with ``sample`` in the plan's order, then the decodes in order.

    ``duration`` is the device's time for the step, in seconds.
    """

    step: int
    duration: float
    registration: int = 0


# Scheduler and vocoder worker -----------------------------------------------------------------------------------------


class DecodeItem(Struct, frozen=True, forbid_unknown_fields=True):
    """Frames of a stream to turn into sound; ``reset`` starts the slot anew (the first chunk).

    Frames before number ``heard`` are decoded for the slot's state alone: their sound was delivered before.
    ``turn_starts``: as in :class:`FrameSpan`.
    """

    request: str
    gateway: str
    slot: int
    first: int
    frames: int
    reset: bool
    heard: int = 0
    turn_starts: list[int] = []


class DecodePlan(Body, frozen=True):
    """One vocoder call. Array: codes int16 [sum of frames, 10], item after item, as sampled."""

    call: int
    items: list[DecodeItem]
    registration: int = 0


class DecodeDone(Body, frozen=True):
    """All sound of a call was sent, except to the gateways named (incarnations), to which there is no connection."""

    call: int
    duration: float
    unreachable: list[str]
    registration: int = 0


# Vocoder worker and gateway -------------------------------------------------------------------------------------------


class Attach(Body, frozen=True):
    """A gateway asks a vocoder worker to send it the sound of its requests; answered by :class:`Attached`."""


class Audio(Body, frozen=True):
    """Sound, as planned by ``scheduler``. Arrays: the codes that it was made of, int16 [sum of frames, 10], then one
    float32 [frames * hop] per span, within -1 and 1."""

    spans: list[FrameSpan]
    scheduler: str


AnyBody: TypeAlias = (
    GatewayHello
    | ArWorkerHello
    | VocoderWorkerHello
    | Welcome
    | Disowned
    | Ping
    | Pong
    | Leaving
    | Shutdown
    | Submit
    | Extend
    | Vocode
    | Resume
    | Cancel
    | Credit
    | EncodeAudio
    | Codes
    | Rested
    | Ended
    | Encoded
    | GroupState
    | Attached
    | Detached
    | StepPlan
    | StepDone
    | DecodePlan
    | DecodeDone
    | Attach
    | Audio
)


class ArrayInfo(Struct, frozen=True, forbid_unknown_fields=True):
    dtype: Literal["int16", "int32", "uint8", "float32"]
    shape: list[int]


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    source: str
    target: str
    body: AnyBody
    arrays: list[ArrayInfo]


class Message(NamedTuple):
    """A received message. ``arrays``: read-only views of the received frames."""

    source: str
    target: str
    body: AnyBody
    arrays: list[Array]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Header)


def pack(body: AnyBody, arrays: Sequence[Array] = (), *, source: str, target: str) -> list[Any]:
    """Encode a message as frames: the header, then one contiguous buffer per array (not copied if contiguous)."""
    buffers = [np.ascontiguousarray(array) for array in arrays]
    infos = [ArrayInfo(buffer.dtype.name, list(buffer.shape)) for buffer in buffers]  # type: ignore[arg-type]
    header = _encoder.encode(Header(PROTOCOL_VERSION, source, target, body, infos))
    return [header, *(buffer.reshape(-1).view(np.uint8) for buffer in buffers)]


def unpack(frames: Sequence[zmq.Frame | bytes]) -> Message:
    """Decode the message in these frames.

    Raises:
        MessageError: not a message of this version, or arrays that don't fit their description.
    """
    try:
        header = _decoder.decode(_buffer(frames[0]))
    except (IndexError, msgspec.DecodeError) as error:
        raise MessageError(f"not a message: {error}") from None
    if header.version != PROTOCOL_VERSION:
        raise MessageError(f"protocol version {header.version}, not {PROTOCOL_VERSION}")
    if len(frames) - 1 != len(header.arrays):
        raise MessageError(f"{len(frames) - 1} array frames, header says {len(header.arrays)}")
    arrays = [_view(info, _buffer(frame)) for info, frame in zip(header.arrays, frames[1:], strict=True)]
    return Message(header.source, header.target, header.body, arrays)


def _buffer(frame: zmq.Frame | bytes) -> memoryview | bytes:
    return frame.buffer if isinstance(frame, zmq.Frame) else frame


def _view(info: ArrayInfo, buffer: memoryview | bytes) -> Array:
    dtype = np.dtype(info.dtype)
    if min(info.shape, default=0) < 0 or math.prod(info.shape) * dtype.itemsize != len(buffer):
        raise MessageError(f"{info.dtype} {info.shape} does not fit {len(buffer)} bytes")
    array = np.frombuffer(buffer, dtype).reshape(info.shape)
    array.flags.writeable = False
    return array
