"""Step 1, the corpus: sentences spoken by the teacher, with the times of their phones and words.

``python -m models.recipe.corpus`` writes shards of a thousand utterances: ``NNN.pcm`` (int16 at the teacher's sample
rate, one after another) and ``NNN.msgpack`` (a list of :class:`Utterance`). It skips shards that exist.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path

import msgspec
import numpy as np
from tqdm import tqdm

from common.files import write_atomically
from common.messages import Array
from models.recipe.flite import Flite
from models.recipe.kokoro import Kokoro
from models.recipe.measures import loudness
from models.recipe.settings import Settings, parse_settings
from models.recipe.teacher import Speech, Teacher
from models.recipe.test_sentences import TEST_SENTENCES
from models.recipe.text import sentences

SHARD = 1000  # utterances
LOUDNESS = -18.0  # LUFS
LEAD, TAIL = 0.05, 0.1  # seconds of silence kept before the first word and after the last
LONGEST = 9.0  # seconds
TEACHERS: dict[str, type[Teacher]] = {"flite": Flite, "kokoro": Kokoro}


class Utterance(msgspec.Struct, frozen=True, array_like=True):
    """One sentence of a shard. Times are in seconds from its first sample."""

    text: str
    voice: int  # index into the teacher's voices
    first: int  # its first sample in the shard
    samples: int
    phones: list[int]
    phone_ends: list[float]
    words: list[tuple[float, float, int, int]]  # begin, end; first character and the one behind the last


class Shard:
    """A shard on disk: utterances and their sound."""

    def __init__(self, path: Path) -> None:
        """``path`` has no suffix."""
        self.path = path
        self.utterances = msgspec.msgpack.decode(path.with_suffix(".msgpack").read_bytes(), type=list[Utterance])

    @cached_property
    def _pcm(self) -> Array:
        return np.memmap(self.path.with_suffix(".pcm"), np.int16, "r")

    def sound(self, utterance: Utterance) -> Array:
        """float32 [samples], within -1 and 1."""
        pcm = self._pcm[utterance.first : utterance.first + utterance.samples]
        return pcm.astype(np.float32) / 32768


def shard_paths(directory: Path) -> list[Path]:
    """Paths of the complete shards, without suffix."""
    return [path.with_suffix("") for path in sorted(directory.glob("*.msgpack"))]


def place_words(text: str, speech: Speech) -> list[tuple[float, float, int, int]] | None:
    """Locates each spoken word in the text; returns None if one can't be found."""
    placed, position = [], 0
    for word in speech.words:
        first = text.find(word.text, position)
        if first < 0:
            return None
        position = first + len(word.text)
        placed.append((word.begin, word.end, first, position))
    return placed or None


def cut(speech: Speech, sample_rate: int) -> tuple[float, Array]:
    """Cuts the silence from both ends but for LEAD and TAIL.

    Returns:
        where the sound begins, in seconds of the speech, and the sound, float64 within -1 and 1.
    """
    begin = max(0.0, speech.words[0].begin - LEAD)
    sound = speech.sound[int(begin * sample_rate) : int((speech.words[-1].end + TAIL) * sample_rate)]
    return begin, sound / 32768.0


def levelled(sound: Array, sample_rate: int) -> Array:
    """The sound at the loudness of the corpus."""
    louder: Array = sound * 10 ** ((LOUDNESS - loudness(sound, sample_rate)) / 20)
    return louder


def _utterance(text: str, voice: int, teacher: Teacher) -> tuple[Utterance, Array] | None:
    """The spoken sentence and its sound as int16; None if it is too short or long, or its words can't be placed."""
    rate = teacher.sample_rate
    speech = teacher.speak(text, teacher.voices[voice])
    words = place_words(text, speech)
    if words is None:
        return None
    begin, sound = cut(speech, rate)
    if not rate // 2 < len(sound) < LONGEST * rate:
        return None
    pcm = np.clip(levelled(sound, rate) * 32768, -32768, 32767).astype(np.int16)
    moved = [(start - begin, end - begin, first, last) for start, end, first, last in words]
    ends = (speech.phone_ends - begin).tolist()
    return Utterance(text, voice, 0, len(pcm), speech.phones.tolist(), ends, moved), pcm


def _write_shard(path: Path, texts: Sequence[str], teacher: Teacher) -> float:
    """Returns the seconds of speech written."""
    utterances, sounds, first = [], [], 0
    for number, text in enumerate(texts):
        made = _utterance(text, number % len(teacher.voices), teacher)
        if made is not None:
            utterances.append(msgspec.structs.replace(made[0], first=first))
            sounds.append(made[1])
            first += len(made[1])
    write_atomically(path.with_suffix(".pcm"), np.concatenate(sounds).tobytes())
    write_atomically(path.with_suffix(".msgpack"), msgspec.msgpack.encode(utterances))
    return first / teacher.sample_rate


@cache
def make_teacher(name: str) -> Teacher:
    """One of TEACHERS, loaded once per process."""
    return TEACHERS[name]()


def _work(job: tuple[Path, Sequence[str], str]) -> float:
    path, texts, teacher = job
    return _write_shard(path, texts, make_teacher(teacher))


def _jobs(settings: Settings) -> Iterator[tuple[Path, Sequence[str], str]]:
    texts = sentences(settings.sentences, TEST_SENTENCES, settings.seed)
    done = set(shard_paths(settings.corpus))
    for number, first in enumerate(range(0, len(texts), SHARD)):
        path = settings.corpus / f"{number:03d}"
        if path not in done:
            yield path, texts[first : first + SHARD], settings.teacher


def make(settings: Settings) -> None:
    settings.corpus.mkdir(parents=True, exist_ok=True)
    jobs = list(_jobs(settings))
    seconds = 0.0
    with multiprocessing.get_context("spawn").Pool(settings.threads) as pool:
        for made in tqdm(pool.imap(_work, jobs), "shards", len(jobs)):
            seconds += made
    print(f"{seconds / 3600:.2f} hours of speech added in {settings.corpus}")


if __name__ == "__main__":
    make(parse_settings(__doc__))
