"""The teacher: Flite's C library, which reports the times of each phone and word.

Debian's package ``libflite1`` brings the library and the voices ``cmu_us_slt`` and ``cmu_us_rms``.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_float, c_int, c_short, c_uint, c_void_p
from typing import Any

import numpy as np

from common.messages import Array
from models.recipe.teacher import Speech, Word

SAMPLE_RATE = 16000
VOICES = ("slt", "rms")  # a woman's and a man's; a voice's number is its place here
PHONES = (
    *"pau aa ae ah ao aw ax ay b ch d dh eh er ey f g hh ih iy jh k l m".split(),
    *"n ng ow oy p r s sh t th uh uw v w y z zh".split(),
)


class _Wave(ctypes.Structure):
    _fields_ = [
        ("type", c_char_p),
        ("sample_rate", c_int),
        ("num_samples", c_int),
        ("num_channels", c_int),
        ("samples", POINTER(c_short)),
    ]


def _library(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(f"lib{name}.so.1", ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RuntimeError(f"Flite is missing ({error}): install Debian's package libflite1") from None


class Flite:
    """One instance of the library with its two voices; see :class:`models.recipe.teacher.Teacher`."""

    sample_rate = SAMPLE_RATE
    voices: tuple[str, ...] = VOICES
    phones: tuple[str, ...] = PHONES

    def __init__(self) -> None:
        self._flite = _library("flite")
        for part in ("flite_usenglish", "flite_cmulex"):
            _library(part)
        self._function("flite_init", c_int)()
        self._voices = {name: self._register(name) for name in VOICES}
        self._synthesize = self._function("flite_synth_text", c_void_p, c_char_p, c_void_p)
        self._wave = self._function("utt_wave", POINTER(_Wave), c_void_p)
        self._relation = self._function("utt_relation", c_void_p, c_void_p, c_char_p)
        self._head = self._function("relation_head", c_void_p, c_void_p)
        self._next = self._function("item_next", c_void_p, c_void_p)
        self._daughter = self._function("item_daughter", c_void_p, c_void_p)
        self._as = self._function("item_as", c_void_p, c_void_p, c_char_p)
        self._string = self._function("item_feat_string", c_char_p, c_void_p, c_char_p)
        self._float = self._function("item_feat_float", c_float, c_void_p, c_char_p)
        self._delete = self._function("delete_utterance", None, c_void_p)
        self._seed = self._function("srand", None, c_uint, library=ctypes.CDLL(None))

    def _function(self, name: str, result: Any, *arguments: Any, library: ctypes.CDLL | None = None) -> Any:
        function = getattr(library or self._flite, name)
        function.restype, function.argtypes = result, list(arguments)
        return function

    def _register(self, name: str) -> Any:
        library = _library(f"flite_cmu_us_{name}")
        return self._function(f"register_cmu_us_{name}", c_void_p, c_void_p, library=library)(None)

    def speak(self, text: str, voice: str) -> Speech:
        """Speak an ASCII text with one of VOICES. Deterministic: the text seeds C's rand(), which draws the noise."""
        self._seed(zlib.crc32(text.encode()))
        utterance = self._synthesize(text.encode("ascii"), self._voices[voice])
        try:
            wave = self._wave(utterance).contents
            sound = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).copy()
            segments = list(self._items(self._head(self._relation(utterance, b"Segment"))))
            names = [self._string(item, b"name").decode() for item in segments]
            ends = np.array([self._float(item, b"end") for item in segments])
            words = list(self._words(utterance, ends))
        finally:
            self._delete(utterance)
        return Speech(sound, np.array([PHONES.index(name) for name in names]), ends, words)

    def _words(self, utterance: Any, phone_ends: Array) -> Iterator[Word]:
        """Yields the spoken tokens of the text; each begins at the end of the phone before its first one."""
        for token in self._items(self._head(self._relation(utterance, b"Token"))):
            ends = [self._float(phone, b"end") for phone in self._token_phones(token)]
            if ends:
                first = int(np.abs(phone_ends - ends[0]).argmin())
                begin = float(phone_ends[first - 1]) if first else 0.0
                yield Word(self._string(token, b"name").decode(), begin, ends[-1])

    def _token_phones(self, token: Any) -> Iterator[Any]:
        for word in self._items(self._daughter(token)):
            syllables = self._as(word, b"SylStructure")
            for syllable in self._items(self._daughter(syllables) if syllables else None):
                yield from self._items(self._daughter(syllable))

    def _items(self, item: Any) -> Iterator[Any]:
        while item:
            yield item
            item = self._next(item)
