"""Sentences to train on: from freely licensed texts of Debian's packages, from templates, and from lists of words.

Sources, each a package of Debian's main archive: ``wordnet-base`` (examples and definitions; WordNet licence),
``fortunes`` (BSD), ``wamerican`` and ``wamerican-small`` (word lists; public domain and permissive). A sentence is kept
if it is plain, and if a word list knows its words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gateway.text.normalize import normalize
from models.recipe.templates import templated

LONGEST = 110  # characters; what the model is given as one turn
SHORTEST = 8
WORD_LIST_SHARE = 0.06
TEMPLATE_SHARE = 0.12

_SHARE = Path("/usr/share")
_FORTUNES = (
    "computers cookie definitions education fortunes humorists literature magic medicine miscellaneous news pets"
)
_FORTUNES += " people platitudes riddles science songs-poems sports startrek translate-me wisdom work"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z ,.;:?!'\-]*[A-Za-z.?!]")
_ODD = re.compile(r"\w[.:;,!?]\w|[.]{2}|--|\s-\s|\s'|'\s.*'|\w-\w+-\w+-|\b[A-Z]{2,}\b|\b[b-hj-zB-HJ-Z]\b|[,;:]\s*[.?!]")
_TITLE = re.compile(r"\b(Mr|Mrs|Dr|St|Ms|Prof|Jr|Sr|vs|etc|e\.g|i\.e)\.")
_WORD = re.compile(r"[a-z']+")


def sentences(count: int, excluded: Iterable[str], seed: int) -> list[str]:
    """``count`` different sentences in words (numbers read out), shuffled; none of ``excluded``.

    Raises:
        RuntimeError: a source is missing, or there aren't enough sentences.
    """
    rng = random.Random(seed)
    known = _words("american-english")
    barred = {_letters(text) for text in excluded}
    made = _distinct((normalize(templated(rng), "en") for _ in range(count)), barred)
    listed = list(_word_lists(rng, int(count * WORD_LIST_SHARE)))
    found = _distinct((text for source in _SOURCES for text in source() if _speakable(text, known)), barred)
    for texts in (made, found):
        rng.shuffle(texts)
    made = made[: int(count * TEMPLATE_SHARE)]
    chosen = made + listed + found[: count - len(made) - len(listed)]
    if len(chosen) < count:
        raise RuntimeError(f"the sources have {len(chosen)} sentences, {count} were asked for")
    rng.shuffle(chosen)
    return chosen


def _distinct(texts: Iterable[str], barred: set[str]) -> list[str]:
    """Unique texts in sorted order (independent of the run), without those whose letters are barred."""
    return sorted({text for text in texts if _letters(text) not in barred})


def _letters(text: str) -> str:
    return re.sub("[^a-z]", "", text.lower())


def _speakable(text: str, known: frozenset[str]) -> bool:
    if not SHORTEST <= len(text) <= LONGEST or not _PLAIN.fullmatch(text) or _ODD.search(text):
        return False
    words = _WORD.findall(text.lower())
    return len(words) > 1 and all(word.strip("'") in known or word in known for word in words)


def _words(name: str) -> frozenset[str]:
    return frozenset(line.lower() for line in _read(_SHARE / "dict" / name).splitlines())


def _read(path: Path) -> str:
    if not path.exists():
        raise RuntimeError(f"{path} is missing: the README of the recipe names Debian's packages")
    return path.read_text("utf-8", "replace")


def _tidy(text: str) -> str:
    """Straightens quotes, removes brackets, double spaces and spaces before a stop."""
    text = re.sub("[\u2018\u2019]", "'", text)
    text = re.sub("[\u201c\u201d\"`_()]|''", "", text)
    text = re.sub("\u2014|--", ", ", text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s+([,.;:?!])", r"\1", text)


def _ended(text: str) -> str:
    """Turns a phrase into a sentence: a capital at the beginning and a stop at the end."""
    text = _tidy(text).strip(" ,;:")
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".?!" else ".")


def _split(text: str) -> Iterator[str]:
    for sentence in re.split(r"(?<=[.?!])\s+", _TITLE.sub(r"\1", _tidy(text))):
        if sentence[:1].isupper() and sentence[-1:] in ".?!":
            yield sentence


def _wordnet() -> Iterator[str]:
    for part in ("adj", "adv", "noun", "verb"):
        for line in _read(_SHARE / "wordnet" / f"data.{part}").splitlines():
            gloss = line.partition("|")[2]
            examples = re.findall(r'"([^"]+)"', gloss)
            definition = re.sub(r'"[^"]*"', "", gloss).split(";")[0]
            yield from (_ended(phrase) for phrase in [*examples, definition] if len(phrase.split()) > 3)


def _fortunes() -> Iterator[str]:
    for name in _FORTUNES.split():
        for saying in _read(_SHARE / "games" / "fortunes" / name).split("\n%\n"):
            yield from _split(re.sub(r"\n\s+--.*", "", saying, flags=re.DOTALL))


_SOURCES: tuple[Callable[[], Iterator[str]], ...] = (_wordnet, _fortunes)


def _word_lists(rng: random.Random, count: int) -> Iterator[str]:
    """Yields lists of common words, since sentences rarely contain the less frequent ones."""
    words = sorted(word for word in _words("american-english-small") if re.fullmatch("[a-z]{3,12}", word))
    for _ in range(count):
        line = ", ".join(rng.sample(words, rng.randint(3, 7)))
        yield line.capitalize() + "."
