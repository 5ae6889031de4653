"""Client of a running server."""

from __future__ import annotations

import io
import json
import urllib.request

import soundfile
from prometheus_client.parser import text_string_to_metric_families

from common.messages import Array
from models.recipe.flite import SAMPLE_RATE

SEED = 1
PROCESSOR_TIME = "process_cpu_seconds_total"


class Server:
    """Speaks a text through the server. ``voice``: request fields that select one."""

    def __init__(self, url: str, voice: dict[str, object]) -> None:
        self._url, self._voice = url.rstrip("/"), voice

    def __call__(self, text: str) -> Array:
        """float32 sound [n] at 16 kHz."""
        body = {"text": text, "format": "wav", "seed": SEED, **self._voice}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/v1/tts", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as reply:
            sound, rate = soundfile.read(io.BytesIO(reply.read()), dtype="float32")
        if rate != SAMPLE_RATE:
            raise RuntimeError(f"the server speaks at {rate} Hz, the miniature at {SAMPLE_RATE}")
        made: Array = sound
        return made

    def processor_time(self) -> dict[str, float]:
        """Seconds of one core that each process of the group has used since its start."""
        with urllib.request.urlopen(f"{self._url}/metrics", timeout=10) as reply:
            families = list(text_string_to_metric_families(reply.read().decode()))
        samples = [sample for family in families for sample in family.samples if sample.name == PROCESSOR_TIME]
        return {sample.labels["process"]: sample.value for sample in samples}
