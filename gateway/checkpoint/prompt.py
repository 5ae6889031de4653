"""Prompts: text to speaker turns, batches of turns, and token ids of the conversation.

Each segment is tokenised by itself, so that no merge crosses a border and nothing a user types becomes a control token.
A prompt is int32 [11, T]: token ids in row 0, the ten codes of a frame below its semantic token, zeros below text.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from common.checkpoint import CheckpointError, special_tokens
from common.messages import PROMPT_ROWS, Array

TURNS_PER_BATCH = 5
SYSTEM_TURNS = 32  # that are kept

_SAID = frozenset("%&@#+=$€£¥₹§°÷±½¼¾")  # signs that have a name

_SYSTEM = "<|im_start|>system\n"
_SPEAK = "convert the provided text to speech"
_SPEAK_LIKE = "convert the provided text to speech reference to the following:\n\nText:\n"
_SPEECH = "\n\nSpeech:\n"
_USER = "<|im_start|>user\n"
_ASSISTANT = "<|im_start|>assistant\n<|voice|>"
_END = "<|im_end|>\n"

SPEAKER = re.compile(r"<\|speaker:\d+\|>")
_CONTROL_FORM = re.compile(r"<\|.+\|>", re.DOTALL)
_CONTROL_ANYWHERE = re.compile(r"(?=(<\|.{1,128}?\|>))", re.DOTALL)  # in a look-ahead, so that matches may overlap


class Reference(NamedTuple):
    """A reference voice: the transcript of a recording and its codes, int16 [10, frames]."""

    text: str
    codes: Array


def of_speaker(reference: Reference, speaker: int) -> Reference:
    """Assign a reference to a speaker, unless its text has speaker tags of its own."""
    text = reference.text
    return reference if SPEAKER.search(text) else reference._replace(text=f"<|speaker:{speaker}|>{text}")


def spoken_part(text: str) -> str:
    """Remove speaker tags from a text."""
    return SPEAKER.sub("", text)


def split_turns(text: str) -> list[str]:
    """Split a text into speaker turns, each with its tag; text before the first tag is a turn without one."""
    starts = [match.start() for match in SPEAKER.finditer(text)]
    if not starts:
        return []
    borders = [0, *starts, len(text)]
    turns = [text[begin:end].strip() for begin, end in itertools.pairwise(borders)]
    return turns if turns[0] else turns[1:]


def split_batches(text: str, chunk_length: int) -> list[str]:
    """Group turns into batches of at most five turns or ``chunk_length`` UTF-8 bytes; untagged text is one batch."""
    batches: list[list[str]] = []
    size = 0
    for turn in split_turns(text):
        length = len(turn.encode())
        if not batches or len(batches[-1]) == TURNS_PER_BATCH or size + length > chunk_length:
            batches.append([])
            size = 0
        batches[-1].append(turn)
        size += length
    return ["\n".join(batch) for batch in batches] or [text]


class Prompts:
    """Builds prompts for one checkpoint."""

    def __init__(self, directory: Path, semantic_begin_id: int) -> None:
        """Load tokenizer.json.

        Raises:
            CheckpointError: it can't be read.
        """
        path = directory / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path}: {error}") from None
        self._semantic_begin_id = semantic_begin_id
        self._limited = getattr(self._tokenizer.model, "unk_token", None) is not None  # there are letters it has not
        self._reserved = {
            token: number
            for token, number in special_tokens(directory).items()
            if _CONTROL_FORM.fullmatch(token) and not SPEAKER.fullmatch(token)
        }
        self._reserved_ids = frozenset(self._reserved.values())
        self._fixed = functools.cache(self._tokenised)
        self._system = functools.lru_cache(SYSTEM_TURNS)(self._system_turn)

    def reserved_token(self, text: str) -> str | None:
        """Return the first control token spelled out in a text, or None."""
        return next((found[1] for found in _CONTROL_ANYWHERE.finditer(text) if found[1] in self._reserved), None)

    def speakable(self, text: str) -> bool:
        """Return whether a text has anything speakable: a letter, digit or sign that the model knows."""
        text = spoken_part(text)
        if self._limited:
            return any(token.isalnum() for token in self._tokenizer.encode(text, add_special_tokens=False).tokens)
        return any(unicodedata.category(letter)[0] in "LN" or letter in _SAID for letter in text)

    def tokens(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self._ids(text))

    def build(self, batches: list[str], references: list[Reference]) -> list[Array]:
        """Build the turns of a conversation, int32 [11, T] each; the model speaks after each of them.

        Raises:
            ValueError: a text holds a control token, which :meth:`reserved_token` tells beforehand.
        """
        texts = [of_speaker(reference, index).text for index, reference in enumerate(references)]
        spoken = tuple(codes.astype(np.int16, copy=False).tobytes() for _, codes in references)
        first = np.concatenate([self._system("\n".join(texts), spoken), *self._turn(batches[0])], axis=1)
        return [first, *(self.later(batch) for batch in batches[1:])]

    def later(self, batch: str) -> Array:
        """Build a turn that follows another, int32 [11, T].

        Raises:
            ValueError: as :meth:`build`.
        """
        return np.concatenate([self._fixed(_END), *self._turn(batch)], axis=1)

    def _system_turn(self, texts: str, spoken: tuple[bytes, ...]) -> Array:
        """``spoken``: the codes of each reference, int16 [10, frames]."""
        if not spoken:
            return np.concatenate([self._fixed(part) for part in (_SYSTEM, _SPEAK, _END)], axis=1)
        said = [self._fixed(_SYSTEM), self._fixed(_SPEAK_LIKE), self._typed(texts), self._fixed(_SPEECH)]
        codes = [self._codes(np.frombuffer(one, np.int16).reshape(PROMPT_ROWS - 1, -1)) for one in spoken]
        return np.concatenate([*said, *codes, self._fixed(_END)], axis=1)

    def _turn(self, batch: str) -> list[Array]:
        return [self._fixed(_USER), self._typed(batch), self._fixed(_END), self._fixed(_ASSISTANT)]

    def _tokenised(self, segment: str) -> Array:
        return _columns(self._ids(segment))

    def _typed(self, segment: str) -> Array:
        ids = self._ids(segment)
        if not self._reserved_ids.isdisjoint(ids):
            raise ValueError("a text holds a control token")
        return _columns(ids)

    def _codes(self, codes: Array) -> Array:
        return np.concatenate([codes[:1] + np.int32(self._semantic_begin_id), codes]).astype(np.int32)

    def _ids(self, segment: str) -> list[int]:
        return self._tokenizer.encode(segment, add_special_tokens=False).ids


def _columns(ids: Iterable[int]) -> Array:
    row = np.fromiter(ids, np.int32)
    return np.concatenate([row[None], np.zeros((PROMPT_ROWS - 1, len(row)), np.int32)])
