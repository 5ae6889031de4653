"""The executor interface: runs decode calls and encode jobs, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from common.messages import Array, DecodeItem


class DecodeOutput(NamedTuple):
    """The sound of a call's items, in their order: float32 [frames * hop] each. ``duration`` in seconds; ``padding``
    is how many frames were computed besides, to make the streams of a batch equally long."""

    sounds: list[Array]
    duration: float
    padding: int


class EncodeJob(Protocol):
    """Encoding of one clip in bounded spans, between which decode calls may run."""

    def advance(self) -> bool:
        """Encode the next span and return whether the whole clip is encoded."""
        ...

    @property
    def codes(self) -> Array:
        """Return the codes so far, int16 [10, frames]."""
        ...


class Executor(Protocol):
    """Decodes streams, with state per slot, and encodes clips."""

    @property
    def sample_rate(self) -> int:
        """Sample rate of all audio in Hz."""
        ...

    @property
    def hop(self) -> int:
        """Samples per frame."""
        ...

    @property
    def slots(self) -> int: ...

    @property
    def device(self) -> object:
        """Device of the computation; its string is torch's name for it."""
        ...

    @property
    def weight_bytes(self) -> int: ...

    @property
    def state_bytes(self) -> int: ...

    def warm_up(self) -> None:
        """Run each kind of call once, so that the first request does not pay for its set-up. Resets all slots."""
        ...

    def decode(self, items: Sequence[DecodeItem], codes: Array) -> DecodeOutput:
        """Decode codes int16 [sum of frames, 10], concatenated item by item, to audio.

        An item with ``reset`` begins a stream in its slot; one without goes on where the slot's stream was.

        Raises:
            ValueError: a slot is out of range or named twice, an item has no frame, or codes don't match the items.
        """
        ...

    def start_encode(self, samples: Array) -> EncodeJob:
        """Begin to encode a clip, float32 [samples] at the codec's rate. The last frame is padded with silence.

        Raises:
            ValueError: the clip is empty or has more than one dimension.
        """
        ...
