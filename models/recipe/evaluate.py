"""Evaluates a running server: word error rate, voice, level, silence and speed.

Start the server (``deploy/run_all.sh``), then ``python -m models.recipe.evaluate``. Beside the served voices, and those
cloned from a clip of the teacher, it judges the teacher, and the teacher through the codec alone, on the same
sentences: what the judge mishears of those is no fault of the model. Prints a table and writes ``evaluation.json``.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch
from tqdm import tqdm

from common.checkpoint import load_codec_config
from common.messages import Array
from gateway.text.normalize import normalize
from models.recipe.corpus import cut, levelled
from models.recipe.export import REFERENCE_VOICES
from models.recipe.flite import SAMPLE_RATE, VOICES, Flite
from models.recipe.judge import Judge
from models.recipe.measures import clicks, end_silences, loudness, mel_distance, pitch, timbre
from models.recipe.server import Server
from models.recipe.test_sentences import CLIP, NUMBERS, PARAGRAPH, TEST_SENTENCES
from vocoder_worker.encode_job import TorchEncodeJob
from vocoder_worker.streaming import StreamState
from vocoder_worker.weights import load_decoder, load_encoder, read_weights

TOO_SHORT, TOO_LONG = 0.6, 1.6  # of the teacher's time
FEW = 20  # sentences that tell what a teacher sounds like
CLONED = 30  # sentences spoken by a cloned voice

Speak = Callable[[str], Array]
"""A text to float32 sound [n] at 16 kHz."""


class Score(NamedTuple):
    """One system on one list of texts."""

    word_error_rate: float
    lost: float  # share of texts spoken in under 0.6 or over 1.6 times the teacher's time: cut, skipped or endless
    pitch: float  # Hz, mean over texts
    right_voice: float  # share of texts nearer to the right teacher than to the other, by pitch and by spectrum
    loudness: float  # LUFS, mean
    silence: float  # seconds at either end, the most
    clicks: int
    worst: list[str]  # what was misheard most


class Speaker(NamedTuple):
    """Average pitch and timbre of a voice."""

    pitch: float  # Hz
    timbre: Array  # dB [40]

    @classmethod
    def of(cls, sounds: Sequence[Array]) -> Speaker:
        pitches = [pitch(sound, SAMPLE_RATE) for sound in sounds]
        return cls(float(np.mean(pitches)), np.mean([timbre(sound) for sound in sounds], 0))

    def is_nearer(self, right: Speaker, other: Speaker) -> bool:
        """By pitch and by spectrum."""
        steps = [abs(np.log(max(self.pitch, 1) / one.pitch)) for one in (right, other)]
        spectra = [np.linalg.norm(self.timbre - one.timbre) for one in (right, other)]
        return bool(steps[0] < steps[1] and spectra[0] < spectra[1])


class Teacher:
    """Flite at the loudness of the corpus, cut to its words."""

    def __init__(self, flite: Flite, voice: int) -> None:
        self._flite, self._voice = flite, VOICES[voice]

    def __call__(self, text: str) -> Array:
        speech = self._flite.speak(normalize(text, "en"), self._voice)
        return levelled(cut(speech, SAMPLE_RATE)[1], SAMPLE_RATE).astype(np.float32)


class Resynthesis:
    """The teacher through the codec: encoded as a reference is, and decoded."""

    def __init__(self, teacher: Speak, checkpoint: Path) -> None:
        self._teacher, self._config = teacher, load_codec_config(checkpoint)
        stored, device = read_weights(checkpoint), torch.device("cpu")
        self._encoder = load_encoder(stored, self._config, device)
        self._decoder = load_decoder(stored, self._config, device)

    @torch.inference_mode()
    def __call__(self, text: str) -> Array:
        sound = self._teacher(text)
        job = TorchEncodeJob(self._encoder, sound, self._config.hop, 1000, torch.device("cpu"))
        while not job.advance():
            pass
        frames = job.codes.shape[1]
        state = StreamState(self._decoder, 1, torch.device("cpu"))
        rows = torch.from_numpy(self._decoder.table_rows(job.codes.T[None].astype(np.int64)))
        made: Array = self._decoder(rows, state.batch([0], [frames]))[0].numpy()
        return made[: len(sound)]


def clip_of(teacher: Speak) -> dict[str, object]:
    """Request fields that clone the voice of a five-second clip."""
    file = io.BytesIO()
    soundfile.write(file, teacher(CLIP), SAMPLE_RATE, format="WAV")
    return {"references": [{"audio": base64.b64encode(file.getvalue()).decode(), "text": CLIP}]}


def score(texts: list[str], speak: Speak, teacher: Speak, right: Speaker, other: Speaker, judge: Judge) -> Score:
    """``right`` and ``other``: the teacher whose voice it should be, and the one it should not."""
    made = [(text, speak(text), teacher(text)) for text in tqdm(texts, "speaking")]
    judged = [(text, *judge.word_errors(text, sound, SAMPLE_RATE)) for text, sound, _ in tqdm(made, "judging")]
    sounds = [sound for _, sound, _ in made]
    heard = [Speaker.of([sound]) for sound in sounds]
    ratios = np.array([len(sound) / len(wanted) for _, sound, wanted in made])
    worst = sorted(judged, key=lambda row: row[1] / row[2], reverse=True)[:8]
    return Score(
        word_error_rate=sum(row[1] for row in judged) / sum(row[2] for row in judged),
        lost=float(((ratios < TOO_SHORT) | (ratios > TOO_LONG)).mean()),
        pitch=float(np.mean([speaker.pitch for speaker in heard])),
        right_voice=float(np.mean([speaker.is_nearer(right, other) for speaker in heard])),
        loudness=float(np.mean([loudness(sound, SAMPLE_RATE) for sound in sounds])),
        silence=max(max(end_silences(sound, SAMPLE_RATE)) for sound in sounds),
        clicks=sum(clicks(sound) for sound in sounds),
        worst=[f"{text} -> {said}" for text, wrong, _, said in worst if wrong],
    )


def speed(server: Server, texts: list[str]) -> dict[str, float]:
    """Measures sequential replies: processor time of each process and time to the last byte, per second of speech."""
    before, begin, samples = server.processor_time(), time.monotonic(), 0
    for text in tqdm(texts, "speed"):
        samples += len(server(text))
    seconds, spoken, after = time.monotonic() - begin, samples / SAMPLE_RATE, server.processor_time()
    return {name: (after[name] - before[name]) / spoken for name in after} | {"reply": seconds / spoken}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the running server")
    parser.add_argument("--checkpoint", type=Path, default=Path("models/mini"), help="what the server serves")
    parser.add_argument("--sentences", type=int, default=len(TEST_SENTENCES), help="how many of the test sentences")
    parser.add_argument("--output", type=Path, default=Path("evaluation.json"))
    options = parser.parse_args()
    scores, figures = evaluate(options.url, options.checkpoint, options.sentences)
    written = {**{name: values._asdict() for name, values in scores.items()}, **figures}
    options.output.write_text(json.dumps(written, indent=2) + "\n")
    print(table(scores))
    print("".join(f"\n{name}: {value:.3g}" for name, value in figures.items()))


def table(scores: dict[str, Score]) -> str:
    """Formats the scores as a Markdown table, without the misheard texts."""
    columns = [name for name in Score._fields if name != "worst"]
    rows = [["", *(name.replace("_", " ") for name in columns)], ["---"] * (len(columns) + 1)]
    for name, values in scores.items():
        rows.append([name, *(f"{getattr(values, column):.4g}" for column in columns)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def evaluate(url: str, checkpoint: Path, count: int) -> tuple[dict[str, Score], dict[str, float]]:
    """Scores by voice, system and list of texts, and the figures that only some of these have."""
    judge, flite = Judge(threads=1), Flite()
    teachers = [Teacher(flite, voice) for voice in range(len(VOICES))]
    sentences = TEST_SENTENCES[:count]
    speakers = [Speaker.of([teacher(text) for text in sentences[:FEW]]) for teacher in teachers]
    scores: dict[str, Score] = {}
    seconds = speed(Server(url, {}), sentences[:FEW])
    figures = {f"{name}, seconds per second of speech": value for name, value in seconds.items()}
    for name, voice in REFERENCE_VOICES.items():
        teacher, right, other = teachers[voice], speakers[voice], speakers[1 - voice]
        server, codec = Server(url, {"reference_id": name}), Resynthesis(teacher, checkpoint)
        systems: list[tuple[str, list[str], Speak]] = [
            ("teacher", sentences, teacher),
            ("codec", sentences, codec),
            ("served", sentences, server),
            ("cloned", sentences[:CLONED], Server(url, clip_of(teacher))),
            ("numbers", NUMBERS, server),
            ("paragraph", [PARAGRAPH], server),
        ]
        for system, texts, speak in systems:
            scores[f"{name}, {system}"] = score(texts, speak, teacher, right, other, judge)
        distances = [mel_distance(codec(text), teacher(text)) for text in sentences[:FEW]]
        figures[f"{name}, mel distance of the codec in dB"] = float(np.mean(distances))
    return scores, figures


if __name__ == "__main__":
    main()
