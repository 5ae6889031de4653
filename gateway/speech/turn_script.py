"""Splits a text into turns: normalisation, then sentence boundaries and lengths that suit the checkpoint."""

from __future__ import annotations

from common.config import Gateway as Settings
from gateway.checkpoint.prompt import SPEAKER
from gateway.checkpoint.served_model import ServedModel
from gateway.http.errors import invalid
from gateway.text.normalize import normalize
from gateway.text.plain import plain
from gateway.text.splitter import Splitter
from gateway.text.turns import TurnRules, group, turns_of

TURN_BYTES = 300  # about 20 seconds of speech: beyond, models of this kind begin to drift


def turn_rules(model: ServedModel, settings: Settings) -> TurnRules:
    """Return the maximum length of turns: as configured, or the checkpoint's."""
    limit = settings.turn_bytes or model.defaults.turn_bytes or TURN_BYTES
    return TurnRules(limit, alone=model.defaults.turns == 1)


class TurnScript:
    """Turns of one reply. ``chunk_length`` and ``in_words`` are the request's ``chunk_length`` and ``normalize``.

    Give it a text as a whole with :meth:`whole`, or as it is written with :meth:`add` and :meth:`flush`. Some of it may
    be nothing that can be spoken; that is left out.
    """

    def __init__(self, model: ServedModel, settings: Settings, chunk_length: int, in_words: bool) -> None:
        self._model = model
        self._rules = turn_rules(model, settings)
        self._chunk_length = chunk_length
        self._language = model.defaults.normalize if in_words else None
        self._splitter = Splitter(self._rules.limit)
        self._tag = ""

    @property
    def pending(self) -> int:
        """Characters of the incomplete sentence."""
        return len(self._splitter.pending)

    def whole(self, text: str) -> list[str]:
        """Split a complete text into turns.

        Raises:
            ApiError: 400: nothing in it can be spoken, or it holds a reserved token.
        """
        turns = self._spoken(text)
        if not turns:
            raise invalid("text", "holds nothing that can be spoken")
        return turns

    def add(self, text: str) -> list[str]:
        """Add text and return the turns that are complete now.

        Raises:
            ApiError: 400: a reserved token.
        """
        return self._turns(self._splitter.feed(text))

    def flush(self) -> list[str]:
        """Return the remaining text as turns.

        Raises:
            ApiError: 400: a reserved token.
        """
        return self._turns(self._splitter.flush())

    def _turns(self, parts: list[str]) -> list[str]:
        """Make turns of text parts; each begins with a speaker tag or continues with the previous speaker."""
        runs: list[tuple[str, list[str]]] = []
        for part in parts:
            tag = SPEAKER.match(part)
            if tag is not None:
                self._tag, part = tag[0], part[tag.end() :]
            if tag is not None or not runs:
                runs.append((self._tag, []))
            runs[-1][1].append(part)
        texts = [tag + text.strip() for tag, said in runs for text in group(said, self._rules.limit)]
        return [turn for text in texts for turn in self._spoken(text)]

    def _spoken(self, text: str) -> list[str]:
        text = plain(text)
        token = self._model.prompts.reserved_token(text)
        if token is not None:
            raise invalid("text", f"holds {token}, which is reserved for the model")
        if self._language is not None:
            text = normalize(text, self._language)
        turns = turns_of(text, self._chunk_length, self._rules)
        return [turn for turn in turns if self._model.prompts.speakable(turn)]
