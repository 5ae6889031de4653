"""A running server, as any client sees it."""

from __future__ import annotations

import io
import json
import time
import urllib.request

import soundfile

from common.messages import Array
from models.recipe.flite import SAMPLE_RATE

SEED = 1
WORK = ("shoal_step_seconds_sum", "shoal_vocoder_call_seconds_sum")


class Server:
    """Speaks a text. ``voice``: the fields of a request that choose one.

    Counts ``seconds`` until replies were complete, and ``sound_seconds`` of these.
    """

    def __init__(self, url: str, voice: dict[str, object]) -> None:
        self._url, self._voice = url.rstrip("/"), voice
        self.seconds = self.sound_seconds = 0.0

    def __call__(self, text: str) -> Array:
        """float32 sound [n] at 16 kHz."""
        body = {"text": text, "format": "wav", "seed": SEED, **self._voice}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/v1/tts", json.dumps(body).encode(), headers)
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as reply:
            sound, rate = soundfile.read(io.BytesIO(reply.read()), dtype="float32")
        if rate != SAMPLE_RATE:
            raise RuntimeError(f"the server speaks at {rate} Hz, the miniature at {SAMPLE_RATE}")
        self.seconds += time.monotonic() - begin
        self.sound_seconds += len(sound) / SAMPLE_RATE
        made: Array = sound
        return made

    def worked(self) -> float:
        """Seconds of AR steps and vocoder calls since the start, by their clocks: on a core that both share, that is
        also waiting for each other."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(WORK))
