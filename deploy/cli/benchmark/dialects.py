"""Request formats of the supported kinds of server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from deploy.cli.sound import Kind


class Dialect(NamedTuple):
    """A kind of server. ``default_rate``: rate of headerless PCM without a stated rate, as its own clients assume."""

    path: str
    default_rate: int
    fields: Callable[[str, Kind, str | None, str], dict[str, Any]]


def _fish(text: str, kind: Kind, voice: str | None, model: str) -> dict[str, Any]:
    return {"text": text, "format": kind, "streaming": True} | ({"reference_id": voice} if voice else {})


def _openai(text: str, kind: Kind, voice: str | None, model: str) -> dict[str, Any]:
    return {"model": model, "input": text, "voice": voice or "alloy", "response_format": kind}


DIALECTS = {"fish": Dialect("/v1/tts", 44_100, _fish), "openai": Dialect("/v1/audio/speech", 24_000, _openai)}
