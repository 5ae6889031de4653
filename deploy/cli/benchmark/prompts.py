"""Texts to speak. Each is used once, since a server may cache computations of a text or its beginning."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

SENTENCES = {"short": (1, 1), "medium": (2, 4), "long": (8, 14)}  # fewest and most
MIXED = {"short": 0.6, "medium": 0.3, "long": 0.1}  # shares

_WHEN = (
    "After the storm|At first light|Before supper|By the end of June|In the first week|Late on Sunday|Most evenings|"
    "On market days|Once a year|Shortly after ten|That same winter|When the bell rang"
)
_WHO = (
    "a retired pilot|my older sister|nobody in the village|our neighbour's son|seven fishermen|the baker|the choir|"
    "the lighthouse keeper|the new doctor|the night watchman|three students|two tired travellers"
)
_DID = "carried|counted|drew|forgot|found|hid|mended|painted|repaired|returned|searched|sold|traded|washed|weighed"
_WHAT = (
    "a box of letters|a broken compass|a dozen lanterns|a map of the river|an old violin|four wooden chairs|"
    "half the apples|the blue bicycle|the clock|the garden gate|the last photograph|the sails|the silver spoons"
)
_WHERE = (
    "behind the mill|beside the railway|by the harbour wall|in the attic|in the long corridor|near the bridge|"
    "on the hill|outside the library|under the stairs|without a word|for no clear reason|with great care"
)
_PARTS = [words.split("|") for words in (_WHEN, _WHO, _DID, _WHAT, _WHERE)]


class Prompts:
    """Endless supply of texts. ``on_repeat`` is called once, when the first text repeats."""

    def __init__(self, texts: Iterator[str], on_repeat: Callable[[], None]) -> None:
        self.repeated = False
        self._texts = texts
        self._seen: set[str] = set()
        self._on_repeat = on_repeat

    def next(self) -> str:
        text = next(self._texts)
        if text in self._seen and not self.repeated:
            self.repeated = True
            self._on_repeat()
        self._seen.add(text)
        return text


def cycle(texts: Sequence[str]) -> Iterator[str]:
    """Repeat these texts."""
    while True:
        yield from texts


def made_up(length: str, seed: int) -> Iterator[str]:
    """Make texts that differ from their first words on, of a length in :data:`SENTENCES` or ``mixed``."""
    draw, seen = random.Random(seed), set[str]()
    while True:
        chosen = length if length != "mixed" else draw.choices(list(MIXED), list(MIXED.values()))[0]
        text = " ".join(_sentence(draw) for _ in range(draw.randint(*SENTENCES[chosen])))
        if text not in seen:
            seen.add(text)
            yield text


def _sentence(draw: random.Random) -> str:
    when, who, did, what, where = (draw.choice(words) for words in _PARTS)
    return f"{when}, {who} {did} {what} {where}."
