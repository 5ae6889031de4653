"""Body of ``POST /v1/audio/speech``: OpenAI's names for Fish's fields, and the fields that only OpenAI has."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import Struct

from gateway.http.errors import ApiError, invalid
from gateway.schema.fields import convert, tidied
from gateway.schema.reference_fields import plain_audio

RENAMED = {"input": "text", "response_format": "format", "stream": "streaming"}
"""OpenAI's names of Fish's fields."""

NAMES = {fish: openai for openai, fish in RENAMED.items()} | {
    "prosody.speed": "speed",
    "reference_id": "voice",
}
"""Names of Fish's fields in OpenAI's body, for errors."""

_REFERENCE_NAMES = {
    "references[0]": "ref_audio",
    "references[0].audio": "ref_audio",
    "references[0].text": "ref_text",
}


class VoiceName(Struct, frozen=True):
    """A voice in the form that newer OpenAI clients send."""

    id: str


class OwnFields(Struct, frozen=True):
    """Fields that only OpenAI's API has."""

    model: str = ""
    voice: str | VoiceName = ""
    stream_format: Literal["audio", "sse"] = "audio"
    instructions: str = ""  # checked, without effect
    ref_text: str | None = None


class OpenAIFields(NamedTuple):
    """A translated body. ``values``: fields by Fish's names, without a voice. ``names``: their names for errors.

    ``voice``: as sent, "" for none. ``events``: the sound is wanted as server-sent events.
    """

    values: dict[Any, Any]
    names: dict[str, str]
    model: str
    voice: str
    events: bool


def translate(values: dict[Any, Any]) -> OpenAIFields:
    """Translate a body without nulls to Fish's fields. Fields without a name in OpenAI's API keep Fish's.

    Raises:
        ApiError: 400, naming the field.
    """
    strings = {name: value for name, value in values.items() if isinstance(name, str)}
    given: dict[Any, Any] = tidied(strings, keep=("input", "model", "voice", "instructions"))
    own = convert({name: given.pop(name) for name in OwnFields.__struct_fields__ if name in given}, OwnFields)
    names = dict(NAMES)
    if "ref_audio" in given:
        given["references"] = [_reference(given, own.ref_text)]
        names |= _REFERENCE_NAMES
    elif own.ref_text is not None:
        raise ApiError(400, "missing_field", "ref_audio: required, since there is a ref_text", "ref_audio")
    if "speed" in given:
        given["prosody"] = _prosody(given)
    for openai, fish in RENAMED.items():
        if openai in given:
            given[fish] = given.pop(openai)
    events = own.stream_format == "sse"
    if events:
        given["streaming"] = True
    voice = own.voice if isinstance(own.voice, str) else own.voice.id
    return OpenAIFields(given, names, own.model.strip(), voice.strip(), events)


def _reference(given: dict[Any, Any], text: str | None) -> dict[str, Any]:
    audio = given.pop("ref_audio")
    if "references" in given:
        raise invalid("ref_audio", "and references are both given")
    if text is None:
        raise ApiError(400, "missing_field", "ref_text: required, what is said in ref_audio", "ref_text")
    return {"audio": plain_audio(audio, "ref_audio") if isinstance(audio, str) else audio, "text": text}


def _prosody(given: dict[Any, Any]) -> Any:
    speed, prosody = given.pop("speed"), given.get("prosody", {})
    return prosody | {"speed": speed} if isinstance(prosody, dict) else prosody
