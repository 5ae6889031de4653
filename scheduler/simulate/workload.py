"""Workloads: arrival times, prompt lengths, voices and lengths of speech.

The scheduler does not see how long a request will be; it sees ``max_frames``, the cap that the gateway would set.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from common.config import Gateway
from common.messages import PROMPT_ROWS, Array

Arrivals: TypeAlias = Literal["poisson", "bursty"]

FRAME_SECONDS = 2048 / 44100
BURSTY_SHAPE = 0.25  # of the gamma distribution of the intervals; 1 is Poisson
SPEECH_BYTES_PER_SECOND = 15  # of text, in ordinary speech
VOICES = 8
TRACE_VOICE_TOKENS = 400
_OWN_TOKEN = 1_000_000  # prompt tokens from here on are one request's own; voices use the numbers below
_COLUMNS = ("arrival", "prompt_tokens", "frames", "voice", "streaming")


class WorkloadError(ValueError):
    """An invalid trace; the message names the file and line."""


class Workload(NamedTuple):
    """A workload of n requests by arrival; ``voice_tokens`` is per voice, all other arrays have length n.

    ``rate`` is the mean rate of ``arrivals``. A prompt is the ``voice_tokens`` shared positions of the request's voice,
    if it has one, and then its ``own_tokens``.
    """

    rate: float  # 1/s
    arrivals: Array  # float64, seconds
    own_tokens: Array  # int64
    voices: Array  # int64, -1: none
    voice_tokens: Array  # int64 [voices]
    frames: Array  # int64
    max_frames: Array  # int64
    streaming: Array  # bool
    deadline: float = Gateway().first_audio_deadline  # seconds in which a client wants its first sound

    def at_rate(self, rate: float) -> Workload:
        """Scale the arrival times."""
        return self._replace(rate=rate, arrivals=self.arrivals * (self.rate / rate))

    def first(self, requests: int) -> Workload:
        """Return the first requests, as many as ``requests``."""
        columns = ("arrivals", "own_tokens", "voices", "frames", "max_frames", "streaming")
        return self._replace(**{name: getattr(self, name)[:requests] for name in columns})

    def prompt(self, index: int) -> Array:
        """Make the prompt of a request, int32 [11, T]. Prompts share a prefix exactly if they share a voice."""
        voice = int(self.voices[index])
        shared = int(self.voice_tokens[voice]) if voice >= 0 else 0
        prompt = np.zeros((PROMPT_ROWS, shared + int(self.own_tokens[index])), np.int32)
        prompt[:, :shared] = voice + 1
        prompt[0, shared:] = _OWN_TOKEN + index
        return prompt


def frames_cap(frames: Array) -> Array:
    """Return the gateway's cap on the frames of a text that takes ``frames``; never below them."""
    gateway = Gateway()
    text_bytes = SPEECH_BYTES_PER_SECOND * FRAME_SECONDS * frames
    seconds = np.maximum(gateway.min_frames_cap_seconds, gateway.seconds_per_byte_cap * text_bytes)
    return np.maximum(np.ceil(seconds / FRAME_SECONDS).astype(np.int64), frames)


def mixed(requests: int, arrivals: Arrivals, seed: int) -> Workload:
    """Make a mix of sentences, paragraphs and pages, half of them in one of a few voices, at one request per second.

    More requests of a seed begin with the fewer ones.
    """
    times, kinds, lengths, speakers, texts, prefixes = (np.random.default_rng([seed, column]) for column in range(6))
    shape = BURSTY_SHAPE if arrivals == "bursty" else 1.0
    kind = kinds.choice(3, requests, p=[0.6, 0.3, 0.1])
    shortest, longest = np.array([1.0, 5.0, 20.0])[kind], np.array([4.0, 12.0, 60.0])[kind]
    frames = np.rint(lengths.uniform(shortest, longest) / FRAME_SECONDS).astype(np.int64)
    voices = speakers.integers(-VOICES, VOICES, requests)
    return Workload(
        rate=1.0,
        arrivals=np.cumsum(times.gamma(shape, 1 / shape, requests)),
        own_tokens=texts.integers(60, np.where(voices >= 0, 301, 901)),
        voices=np.maximum(voices, -1),
        voice_tokens=prefixes.integers(200, 601, VOICES),
        frames=frames,
        max_frames=frames_cap(frames),
        streaming=np.ones(requests, bool),
    )


def read_trace(file: Path) -> Workload:
    """Read a CSV trace without heading: arrival in seconds, prompt tokens, frames, voice or nothing, 0 or 1.

    The last says whether the client streams. The prompt tokens are the request's own; a voice stands for
    ``TRACE_VOICE_TOKENS`` more before them, shared by all requests that name it.

    Raises:
        WorkloadError: naming the line.
    """
    with file.open(newline="") as lines:
        rows = [_row(file, number, row) for number, row in enumerate(csv.reader(lines), 1) if row]
    if len(rows) < 2:
        raise WorkloadError(f"{file}: a trace has two requests at least")
    rows.sort(key=lambda row: row[0])
    arrivals, own_tokens, frames = (np.array([row[column] for row in rows]) for column in range(3))
    names = {name: number for number, name in enumerate(dict.fromkeys(row[3] for row in rows if row[3]))}
    voices = np.array([names.get(row[3], -1) for row in rows])
    span = arrivals[-1] - arrivals[0]
    if span <= 0:
        raise WorkloadError(f"{file}: all requests arrive at once")
    return Workload(
        rate=(len(rows) - 1) / span,
        arrivals=arrivals - arrivals[0],
        own_tokens=own_tokens,
        voices=voices,
        voice_tokens=np.full(len(names), TRACE_VOICE_TOKENS),
        frames=frames,
        max_frames=frames_cap(frames),
        streaming=np.array([row[4] for row in rows]),
    )


def _row(file: Path, number: int, row: list[str]) -> tuple[float, int, int, str, bool]:
    try:
        arrival, prompt_tokens, frames, voice, streaming = (field.strip() for field in row)
        parsed = float(arrival), int(prompt_tokens), int(frames), voice, {"0": False, "1": True}[streaming]
    except (ValueError, KeyError):
        raise WorkloadError(f"{file}:{number}: not {', '.join(_COLUMNS)}") from None
    if not math.isfinite(parsed[0]) or parsed[1] < 1 or parsed[2] < 1:
        raise WorkloadError(f"{file}:{number}: a request has an arrival, a prompt and at least one frame")
    return parsed
