"""Fields of a speech request that select voices and recordings, by speaker.

Lists stand for speakers: entry N of ``reference_id`` or ``references`` is the voice of ``<|speaker:N|>``, and an entry
of ``references`` may be a list of several recordings of that speaker.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta, Struct

from gateway.checkpoint.voice_ids import VOICE_ID
from gateway.http.errors import invalid

_LIST_DEPTH = 2  # of ``references``: speakers, and recordings of one

VoiceId: TypeAlias = Annotated[str, Meta(pattern=f"^{VOICE_ID}\\Z")]


class UploadedReference(Struct, frozen=True):
    """A recording in the request. ``audio`` is binary in msgpack and base64 in JSON."""

    audio: bytes
    text: str


ReferenceId: TypeAlias = VoiceId | list[VoiceId] | None
References: TypeAlias = list[UploadedReference | list[UploadedReference]]


class Clip(NamedTuple):
    """A recording of the request. ``param``: its path in the request."""

    audio: bytes
    text: str
    speaker: int
    param: str


def voice_ids(reference_id: ReferenceId, most: int) -> list[str]:
    """Return the voices by speaker.

    Raises:
        ApiError: 400: more than ``most``.
    """
    ids = [reference_id] if isinstance(reference_id, str) else reference_id or []
    return _bounded(ids, "reference_id", most)


def clips(references: References, most: int) -> list[Clip]:
    """Return the recordings by speaker.

    Raises:
        ApiError: 400: more than ``most``.
    """
    found = []
    for speaker, entry in enumerate(references):
        param = f"references[{speaker}]"
        if isinstance(entry, UploadedReference):
            found.append(Clip(entry.audio, entry.text, speaker, param))
            continue
        found += [Clip(one.audio, one.text, speaker, f"{param}[{number}]") for number, one in enumerate(entry)]
    return _bounded(found, "references", most)


def with_plain_audio(references: Any) -> Any:
    """Reduce ``data:`` URIs in the field to their base64, without checking the rest.

    Raises:
        ApiError: 400: an address instead of a recording. Nothing is ever fetched.
    """
    return _plain(references, "references", _LIST_DEPTH)


def _plain(value: Any, param: str, depth: int) -> Any:
    if isinstance(value, list) and depth:
        return [_plain(entry, f"{param}[{number}]", depth - 1) for number, entry in enumerate(value)]
    if isinstance(value, dict) and isinstance(value.get("audio"), str):
        return value | {"audio": plain_audio(value["audio"], f"{param}.audio")}
    return value


def plain_audio(audio: str, param: str) -> str:
    """Return the base64 of a recording sent as base64 or as a ``data:`` URI.

    Raises:
        ApiError: 400, naming ``param``: an address.
    """
    head = audio[:200]
    if head.startswith("data:") and ";base64," in head:
        return audio.partition(",")[2]
    if "://" in head or head.startswith(("data:", "file:")):
        raise invalid(param, "is an address; nothing is fetched, so send the recording itself, as base64")
    return audio


def _bounded(entries: list[Any], param: str, most: int) -> list[Any]:
    if len(entries) > most:
        raise invalid(param, f"has {len(entries)} entries, more than {most}")
    return entries
