"""How well a running server speaks: word error rate, pitch, level, silence and speed.

Start the server (``deploy/run_all.sh``), then ``python -m models.recipe.evaluate``. Beside the served voices it judges
the teacher, and the teacher through the codec alone, on the same sentences: what the judge mishears of those is no
fault of the model. Prints a table and writes ``evaluation.json``.
"""

from __future__ import annotations

import argparse
import io
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch
from tqdm import tqdm

from common.checkpoint import load_codec_config
from common.messages import Array
from gateway.text.normalize import normalize
from models.recipe.export import REFERENCE_VOICES
from models.recipe.flite import SAMPLE_RATE, VOICES, Flite
from models.recipe.judge import Judge
from models.recipe.measures import clicks, end_silences, loudness, mel_distance, pitch
from models.recipe.test_sentences import NUMBERS, PARAGRAPH, TEST_SENTENCES
from vocoder_worker.encode_job import TorchEncodeJob
from vocoder_worker.streaming import StreamState
from vocoder_worker.weights import load_decoder, load_encoder, read_weights

SEED = 1
TOO_SHORT, TOO_LONG = 0.6, 1.6  # of the teacher's time

Speak = Callable[[str], Array]
"""A text to float32 sound [n] at 16 kHz."""


class Score(NamedTuple):
    """One system on one list of texts."""

    word_error_rate: float
    lost: float  # share of texts spoken in under 0.6 or over 1.6 times the teacher's time: cut, skipped or endless
    pitch: float  # Hz, mean over texts
    right_voice: float  # share of texts whose pitch is nearer to that of the right teacher
    loudness: float  # LUFS, mean
    silence: float  # seconds at either end, the most
    clicks: int
    worst: list[str]  # what was misheard most


class Server:
    """A running server, as any client sees it."""

    def __init__(self, url: str, voice: str) -> None:
        self._url, self._voice = url.rstrip("/"), voice
        self.seconds = self.sound_seconds = 0.0

    def __call__(self, text: str) -> Array:
        body = {"input": text, "voice": self._voice, "model": "shoal", "response_format": "wav", "seed": SEED}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}/v1/audio/speech", json.dumps(body).encode(), headers)
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as reply:
            sound, rate = soundfile.read(io.BytesIO(reply.read()), dtype="float32")
        if rate != SAMPLE_RATE:
            raise RuntimeError(f"the server speaks at {rate} Hz, the miniature at {SAMPLE_RATE}")
        self.seconds += time.monotonic() - begin
        self.sound_seconds += len(sound) / SAMPLE_RATE
        return sound


class Teacher:
    """Flite at the loudness of the corpus, cut to its words."""

    def __init__(self, flite: Flite, voice: int) -> None:
        self._flite, self._voice = flite, VOICES[voice]

    def __call__(self, text: str) -> Array:
        speech = self._flite.speak(normalize(text, "en"), self._voice)
        begin, end = speech.words[0].begin - 0.05, speech.words[-1].end + 0.15
        sound = speech.sound[max(0, int(begin * SAMPLE_RATE)) : int(end * SAMPLE_RATE)] / 32768.0
        return (sound * 10 ** ((-18.0 - loudness(sound, SAMPLE_RATE)) / 20)).astype(np.float32)


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


def score(texts: list[str], speak: Speak, teacher: Speak, pitches: tuple[float, float], judge: Judge) -> Score:
    """``pitches``: of the right teacher and of the other one, in Hz."""
    made = [(text, speak(text), teacher(text)) for text in tqdm(texts, "speaking")]
    judged = [(text, *judge.word_errors(text, sound, SAMPLE_RATE)) for text, sound, _ in tqdm(made, "judging")]
    sounds = [sound for _, sound, _ in made]
    heard = np.array([pitch(sound, SAMPLE_RATE) for sound in sounds])
    ratios = np.array([len(sound) / len(wanted) for _, sound, wanted in made])
    right, other = (np.abs(np.log(np.maximum(heard, 1) / hertz)) for hertz in pitches)
    worst = sorted(judged, key=lambda row: row[1] / row[2], reverse=True)[:8]
    return Score(
        word_error_rate=sum(row[1] for row in judged) / sum(row[2] for row in judged),
        lost=float(((ratios < TOO_SHORT) | (ratios > TOO_LONG)).mean()),
        pitch=float(heard.mean()),
        right_voice=float((right < other).mean()),
        loudness=float(np.mean([loudness(sound, SAMPLE_RATE) for sound in sounds])),
        silence=max(max(end_silences(sound, SAMPLE_RATE)) for sound in sounds),
        clicks=sum(clicks(sound) for sound in sounds),
        worst=[f"{text} -> {said}" for text, wrong, _, said in worst if wrong],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the running server")
    parser.add_argument("--checkpoint", type=Path, default=Path("models/mini"), help="what the server serves")
    parser.add_argument("--sentences", type=int, default=len(TEST_SENTENCES), help="how many of the test sentences")
    parser.add_argument("--output", type=Path, default=Path("evaluation.json"))
    options = parser.parse_args()
    scores = dict(evaluate(options.url, options.checkpoint, options.sentences))
    options.output.write_text(json.dumps(scores, indent=2) + "\n")
    for name, values in scores.items():
        print(name, {key: round(value, 4) for key, value in values.items() if isinstance(value, float | int)})


def evaluate(url: str, checkpoint: Path, count: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Scores by system, voice and list of texts."""
    judge, flite = Judge(threads=1), Flite()
    teachers = [Teacher(flite, voice) for voice in range(len(VOICES))]
    sentences = TEST_SENTENCES[:count]
    pitches = [float(np.mean([pitch(teacher(text), SAMPLE_RATE) for text in sentences[:20]])) for teacher in teachers]
    for name, voice in REFERENCE_VOICES.items():
        teacher, ours = teachers[voice], (pitches[voice], pitches[1 - voice])
        server, resynthesis = Server(url, name), Resynthesis(teacher, checkpoint)
        systems: list[tuple[str, list[str], Speak]] = [
            ("teacher", sentences, teacher),
            ("codec", sentences, resynthesis),
            ("served", sentences, server),
            ("served numbers", NUMBERS, server),
            ("served paragraph", [PARAGRAPH], server),
        ]
        for system, texts, speak in systems:
            result: dict[str, object] = score(texts, speak, teacher, ours, judge)._asdict()
            if system == "codec":
                result["mel_distance"] = float(np.mean([mel_distance(speak(t), teacher(t)) for t in texts[:20]]))
            yield f"{system}, {name}", result
        yield f"speed, {name}", {"real_time_factor": server.seconds / server.sound_seconds}


if __name__ == "__main__":
    main()
