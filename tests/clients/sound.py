"""What a listener makes of the sound that a client got."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np

MODEL_RATE = 16000  # Hz, of the bundled model
SECONDS = 2.0  # of every utterance of the tests' server
PCM_BYTES = 2  # a sample


def decode(data: bytes) -> tuple[int, float]:
    """Sample rate, and seconds of sound in a file of any format that says what it is."""
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.audio[0]
        samples = sum(frame.samples for frame in container.decode(stream))
        return stream.rate, samples / stream.rate


def assert_sound(data: bytes, rate: int, seconds: float = SECONDS, padding: float = 0.0) -> None:
    """It decodes to so much sound, and at most ``padding`` seconds of what the encoder adds."""
    found, length = decode(data)
    assert found == rate
    assert seconds <= length + 1e-6
    assert length <= seconds + padding + 0.001


def assert_pcm(data: bytes, rate: int, seconds: float = SECONDS) -> None:
    assert len(data) == round(rate * seconds) * PCM_BYTES
    assert np.abs(np.frombuffer(data, "<i2").astype(int)).max() > 100, "silence"


def assert_streamed(heard: dict[str, Any]) -> None:
    """It came in pieces, the first of them well before the last."""
    assert heard["pieces"] > 3
    assert heard["first"] < 0.6 * heard["last"]
