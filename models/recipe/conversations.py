"""Training examples of the model: conversations in S2's prompt format, made of utterances of the corpus.

A conversation is what the server sends later: a system turn with no, one or two reference voices, then one or more
user turns, each answered by speech. Everything spoken is learned, that of the references too. Without a reference, a
text has the first voice, or that of its speaker tag; with references, a tag names a reference by its number, and a
number beyond them is somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.messages import Array
from gateway.checkpoint.prompt import Prompts, Reference
from models.recipe.codec import CODEC, CODES, LATENTS_PER_FRAME
from models.recipe.corpus import Shard, Utterance
from models.recipe.encode import utterance_codes
from models.recipe.flite import SAMPLE_RATE, VOICES
from models.recipe.quantizer import phones_at

NOTHING = -100  # the target of what is not learned
NAMED = 0.35  # share of single speakers that have a tag without need
STRANGERS = 0.15  # share of single speakers who are the last one: beside one reference, somebody else
FRAME_NOISE, CODE_NOISE = 0.16, 0.06  # at most this share of past frames, this share of their residual codes


class Shape(NamedTuple):
    """Shape of a conversation: its references, speakers and turns."""

    references: int
    turns: int
    speakers: int = 1  # in each turn


SINGLE = (Shape(0, 1),)
SHAPES = (
    *(Shape(0, 1), Shape(0, 2), Shape(0, 1, 2)),
    *(Shape(1, 1), Shape(1, 1), Shape(1, 1), Shape(1, 2), Shape(1, 3), Shape(1, 1, 2)),
    *(Shape(2, 1), Shape(2, 1, 2)),
)


class Spoken(NamedTuple):
    """Utterance with its codes, letters and phones."""

    text: str
    voice: int
    codes: Array  # int16 [10, F]
    letters: Array  # float32 [F], the place in the text that is being spoken, between letters too
    phones: Array  # int16 [F, 4]


class Example(NamedTuple):
    """One conversation of T positions; each position predicts the next."""

    prompt: Array  # int32 [11, T + 1]
    letters: Array  # float32 [T], the position of the letter that the frame to come speaks; -1 where none comes
    phones: Array  # int16 [T, 4]
    learned: Array  # bool [T], where what comes is a frame or the end of speech


class Batch(NamedTuple):
    """Conversations padded on the right to the longest."""

    prompt: Tensor  # int64 [B, 11, T], with noise
    targets: Tensor  # int64 [B, T], a semantic code, CODES for the end, or NOTHING
    codes: Tensor  # int64 [B, T, 10] of the frame to come
    letters: Tensor  # float32 [B, T]
    phones: Tensor  # int64 [B, T, 4]


def spoken(shard: Shard) -> Iterable[Spoken]:
    """The utterances of an encoded shard."""
    for utterance, codes in zip(shard.utterances, utterance_codes(shard), strict=True):
        frames = codes.shape[1]
        phones = phones_at(utterance, frames * LATENTS_PER_FRAME).reshape(frames, LATENTS_PER_FRAME)
        yield Spoken(utterance.text, utterance.voice, codes, letter_places(utterance, frames), phones.astype(np.int16))


def letter_places(utterance: Utterance, frames: int) -> Array:
    """Text position of the middle of each frame: linear within a word, constant between words. float32 [frames]"""
    times, places = [], []
    for begin, end, first, behind in utterance.words:
        times += [begin, max(end, begin + 2e-3) - 1e-3]
        places += [first, behind - 0.3]
    times.append(times[-1] + 0.05)
    places.append(len(utterance.text) - 0.5)
    middles = (np.arange(frames) + 0.5) * CODEC.hop / SAMPLE_RATE
    return np.interp(middles, times, places).astype(np.float32)


class Conversations:
    """Draws batches of conversations of one shape and similar length."""

    def __init__(self, shards: Iterable[Shard], prompts: Prompts, end_id: int, semantic_begin_id: int) -> None:
        by_voice: list[list[Spoken]] = [[] for _ in VOICES]
        for shard in shards:
            for one in spoken(shard):
                by_voice[one.voice].append(one)
        self._voices = [sorted(voice, key=lambda one: len(one.text) + one.codes.shape[1]) for voice in by_voice]
        self._prompts, self._end, self._semantic = prompts, end_id, semantic_begin_id
        self._tail = prompts.later("a")[:, :1]  # how a speech ends

    def draw(self, rng: np.random.Generator, positions: int, shapes: tuple[Shape, ...], longest: float = 1.0) -> Batch:
        """Draws a batch of about ``positions`` positions. ``longest``: largest quantile of utterance length."""
        shape = shapes[rng.integers(len(shapes))]
        quantiles = rng.uniform(0, longest, 5)
        examples: list[Example] = []
        while not examples or (len(examples) + 1) * max(e.letters.size for e in examples) <= positions:
            examples.append(self._conversation(rng, shape, quantiles))
        return self._batch(rng, examples)

    def _conversation(self, rng: np.random.Generator, shape: Shape, quantiles: Array) -> Example:
        voices = rng.permutation(len(VOICES))  # of each speaker
        places = iter(quantiles)

        def utterance(speaker: int) -> Spoken:
            voice = self._voices[voices[speaker]]
            place = (next(places) + rng.uniform(-0.02, 0.02)) * len(voice)
            return voice[int(np.clip(place, 0, len(voice) - 1))]

        references = [utterance(speaker) for speaker in range(shape.references)]
        alone = int(rng.integers(max(1, shape.references)) if rng.random() > STRANGERS else len(voices) - 1)
        numbers = range(len(voices)) if references else voices
        named = max(shape.references, shape.speakers) > 1 or numbers[alone] != 0 or rng.random() < NAMED
        turns = []
        for _ in range(shape.turns):
            order = rng.permutation(len(voices)) if shape.speakers > 1 else [alone]
            turns.append([(f"<|speaker:{numbers[s]}|>" if named else "", utterance(s)) for s in order])
        return self._example(references, turns)

    def _example(self, references: list[Spoken], turns: list[list[tuple[str, Spoken]]]) -> Example:
        """Builds the prompt of a conversation with its speech, and annotates what is said at each position."""
        batches = ["\n".join(tag + one.text for tag, one in turn) for turn in turns]
        parts = self._prompts.build(batches, [Reference(one.text, one.codes) for one in references])
        columns: list[Array] = []
        said: list[tuple[int, Spoken, int]] = []  # first position of its frames, utterance, position of its text
        length = 0
        for number, (part, turn) in enumerate(zip(parts, turns, strict=True)):
            if number == 0 and references:
                said += self._in_system(part, references)
            columns.append(part)
            place = length + self._text_place(part)
            length += part.shape[1]
            for tag, one in turn:
                place += bool(tag)
                said.append((length, one, place))
                columns.append(self._frames(one))
                length += one.codes.shape[1]
                place += len(one.text) + 1
        columns.append(self._tail)
        return self._annotated(np.concatenate(columns, 1), said)

    def _in_system(self, part: Array, references: list[Spoken]) -> list[tuple[int, Spoken, int]]:
        """Locates the frames and texts of the references in the first part of the prompt."""
        frame = int(np.flatnonzero(part[0] >= self._semantic)[0])
        place = frame - 1 - (sum(len(one.text) + 2 for one in references) - 1)
        said = []
        for one in references:
            said.append((frame, one, place + 1))
            frame += one.codes.shape[1]
            place += len(one.text) + 2
        return said

    def _text_place(self, part: Array) -> int:
        """The position of the first token of the user's text: behind the last ``user`` and before its end."""
        return int(np.flatnonzero(part[0] == self._user_token)[-1]) + 1

    @property
    def _user_token(self) -> int:
        return int(self._prompts.later("a")[0, 3])

    def _frames(self, one: Spoken) -> Array:
        return np.concatenate([one.codes[:1] + np.int32(self._semantic), one.codes]).astype(np.int32)

    def _annotated(self, prompt: Array, said: list[tuple[int, Spoken, int]]) -> Example:
        length = prompt.shape[1] - 1
        letters, phones = np.full(length, -1, np.float32), np.full((length, LATENTS_PER_FRAME), NOTHING, np.int16)
        learned = np.zeros(length, bool)
        for first, one, place in said:
            span = slice(first - 1, first - 1 + one.codes.shape[1])
            letters[span], phones[span], learned[span] = one.letters + place, one.phones, True
        ends = (prompt[0, 1:] == self._end) & (prompt[0, :-1] >= self._semantic)
        return Example(prompt, letters, phones, learned | ends)

    def _batch(self, rng: np.random.Generator, examples: list[Example]) -> Batch:
        rows, length = len(examples), max(example.letters.size for example in examples)
        prompt = np.zeros((rows, 11, length), np.int64)
        targets = np.full((rows, length), NOTHING, np.int64)
        codes = np.zeros((rows, length, 10), np.int64)
        letters = np.full((rows, length), -1, np.float32)
        phones = np.full((rows, length, LATENTS_PER_FRAME), NOTHING, np.int64)
        for row, example in enumerate(examples):
            n = example.letters.size
            prompt[row, :, :n] = self._noisy(rng, example.prompt[:, :-1])
            coming = example.prompt[:, 1:]
            wanted = np.where(coming[0] == self._end, CODES, coming[0] - self._semantic)
            targets[row, :n] = np.where(example.learned, wanted, NOTHING)
            codes[row, :n] = coming[1:].T
            letters[row, :n], phones[row, :n] = example.letters, example.phones
        return Batch(*map(torch.tensor, (prompt, targets, codes, letters, phones)))

    def _noisy(self, rng: np.random.Generator, prompt: Array) -> Array:
        """With some frames put in place of others and some residual codes drawn anew: what the past holds at
        generation is not perfect either, and must be no crutch."""
        noisy = prompt.astype(np.int64)
        frames = np.flatnonzero(prompt[0] >= self._semantic)
        wrong = frames[rng.random(frames.size) < rng.uniform(0, FRAME_NOISE)]
        noisy[:, wrong] = prompt[:, rng.choice(frames, wrong.size)] if frames.size else 0
        residual = noisy[2:, frames]
        drawn = rng.random(residual.shape) < CODE_NOISE
        noisy[2:, frames] = np.where(drawn, rng.integers(CODES, size=residual.shape), residual)
        return noisy
