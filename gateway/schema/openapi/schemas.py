"""Schemas of bodies and replies, from the types that validate them."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from common.config import Gateway as Settings
from gateway.audio.delivery import RATES
from gateway.checkpoint.voice_ids import VOICE_ID
from gateway.schema import replies
from gateway.schema.elevenlabs_fields import ElevenLabsFields, VoiceSettings
from gateway.schema.fields import FISH, OPENAI, Dialect, Fields, Prosody
from gateway.schema.openai_fields import RENAMED, OwnFields
from gateway.schema.voice_fields import Listing, Naming

Schema: TypeAlias = dict[str, Any]

AUDIO: Schema = {"type": "string", "contentEncoding": "base64", "description": "A recording; binary in msgpack."}
FILE: Schema = {"type": "string", "format": "binary"}  # of a form
ID: Schema = {"type": "string", "pattern": f"^{VOICE_ID}$"}
_BLANK: Schema = {"type": "string", "pattern": r"^\s*$"}  # counts as absent
SPEECH, OPENAI_SPEECH, SPEECH_FORM = "SpeechRequest", "OpenAISpeechRequest", "SpeechForm"
ELEVENLABS_SPEECH = "ElevenLabsSpeechRequest"

DESCRIPTIONS = {
    "text": "What is said, with `<|speaker:N|>` where another speaker begins. Control tokens of the model are refused.",
    "streaming": "false: the whole sound in one reply with its length.",
    "seed": "The same request with the same seed gives the same codes. Drawn at random if absent.",
    "temperature": "0: greedy. If absent, as the checkpoint says.",
    "top_p": "If absent, as the checkpoint says.",
    "top_k": "If absent, as the checkpoint says.",
    "max_new_tokens": "Most frames of the reply; 0: as the text allows.",
    "chunk_length": "UTF-8 bytes of speaker turns that are spoken as one batch.",
    "reference_id": "A voice, or one for each speaker. It wins over `references`.",
    "references": "Recordings, by speaker: one or a list of several for each.",
    "mp3_bitrate": "kbit/s.",
    "opus_bitrate": "bit/s, or kbit/s if below 1000; 0 and below: automatic.",
    "sample_rate": "Samples per second, as far as the format has such a rate.",
    "normalize": "Whether numbers may be read out in words.",
    "priority": "batch: served when nobody else waits for a place, and never kept waiting for ever.",
    "features": "No effect.",
    "repetition_penalty": "No effect.",
    "latency": "No effect.",
    "use_memory_cache": "No effect.",
    "min_chunk_length": "No effect.",
    "condition_on_previous_chunks": "No effect.",
    "early_stop_threshold": "No effect.",
}
"""Of Fish's fields."""

_OPENAI_DESCRIPTIONS = {
    "model": "Ours, one that means ours, or a voice.",
    "voice": "A voice of the library, an alias, or one of OpenAI's names; empty or `default`: the default voice.",
    "stream_format": "sse: the sound comes as base64 in server-sent events.",
    "instructions": "No effect.",
    "ref_text": "What is said in `ref_audio`.",
}
_NOT_IN_FORMS = ("references", "features")  # there one field is one part: recordings are files, and lists are JSON


def components(settings: Settings, context: int) -> dict[str, Schema]:
    """Build all named schemas. ``context``: positions of the model."""
    kinds = [Fields, Prosody, OwnFields, ElevenLabsFields, VoiceSettings, Naming, *_all_replies()]
    _, found = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    named = {name: _worded(schema) for name, schema in found.items()}
    speech, own, prosody = named.pop("Fields"), named.pop("OwnFields"), named.pop("Prosody")
    elevenlabs, voice_settings = named.pop("ElevenLabsFields"), named.pop("VoiceSettings")
    named["VoiceNaming"] = named.pop("Naming")
    plain = _speech(speech, settings, context, prosody)
    named[SPEECH] = nullable(plain)
    named[OPENAI_SPEECH] = nullable(_openai(plain, own, prosody))
    named[ELEVENLABS_SPEECH] = nullable(_elevenlabs(elevenlabs, settings, voice_settings))
    named[SPEECH_FORM] = _form(plain)
    return named


def query_of_listing() -> dict[str, Schema]:
    """Build the parameters of ``GET /model``."""
    properties: dict[str, Schema] = dict(msgspec.json.schema(Listing)["$defs"]["Listing"]["properties"])
    properties["self"] = {"type": "string", "description": "true: only voices of this key."}
    properties["tag"] = {"type": "array", "items": {"type": "string"}}
    return properties


def nullable(schema: Schema) -> Schema:
    """Let every optional field of an object also be null."""
    required = schema.get("required", [])
    properties = {
        name: value if name in required else _or_null(value) for name, value in schema.get("properties", {}).items()
    }
    return schema | {"properties": properties}


def _or_null(schema: Schema) -> Schema:
    options = schema.get("anyOf", [])
    if {"type": "null"} in options:
        return schema
    outside = {key: value for key, value in schema.items() if key in ("default", "description")}
    inside = {key: value for key, value in schema.items() if key not in outside and key != "anyOf"}
    return {"anyOf": [*(options or [inside]), {"type": "null"}], **outside}


def _worded(schema: Any) -> Any:
    """Convert patterns to ECMAScript and drop titles, which repeat the names."""
    if isinstance(schema, list):
        return [_worded(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _worded(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    if "pattern" in kept and isinstance(kept["pattern"], str):
        kept["pattern"] = kept["pattern"].replace(r"\Z", "$")
    return kept


def _speech(schema: Schema, settings: Settings, context: int, prosody: Schema) -> Schema:
    properties = dict(schema["properties"])
    properties["text"] = _text(settings)
    properties["max_new_tokens"] = properties["max_new_tokens"] | {"maximum": context}
    properties["sample_rate"] = {"type": "integer", "minimum": RATES[0], "maximum": RATES[1]}
    properties["prosody"] = nullable(prosody | {"properties": prosody["properties"] | {"speed": _speed(FISH)}})
    for name in ("reference_id", "references"):
        properties[name] = _bounded(properties[name], settings.max_references)
    properties["reference_id"] = properties["reference_id"] | {
        "anyOf": [*properties["reference_id"]["anyOf"], _BLANK, {"type": "array", "items": _BLANK, "minItems": 1}]
    }
    for name, description in DESCRIPTIONS.items():
        properties[name] = properties[name] | {"description": description}
    return schema | {"properties": properties}


def _openai(speech: Schema, own: Schema, prosody: Schema) -> Schema:
    """Build the schema of OpenAI's body: OpenAI's names where it has them, Fish's otherwise."""
    ours = {fish: openai for openai, fish in RENAMED.items()}
    properties = {ours.get(name, name): schema for name, schema in speech["properties"].items()}
    volume = {name: schema for name, schema in prosody["properties"].items() if name != "speed"}
    properties["prosody"] = nullable(prosody | {"properties": volume})
    properties |= {"speed": _speed(OPENAI), "ref_audio": AUDIO}
    for name, schema in own["properties"].items():
        properties[name] = schema | {"description": _OPENAI_DESCRIPTIONS[name]}
    return {"type": "object", "required": ["input"], "properties": properties}


def _elevenlabs(schema: Schema, settings: Settings, voice_settings: Schema) -> Schema:
    properties = schema["properties"] | {"text": _text(settings), "voice_settings": nullable(voice_settings)}
    return schema | {"properties": properties}


def _form(speech: Schema) -> Schema:
    properties = {name: schema for name, schema in speech["properties"].items() if name not in _NOT_IN_FORMS}
    properties["reference_audio"] = {"type": "array", "items": FILE, "description": "Recordings."}
    properties["reference_text"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "What is said in each of them, in the same order.",
    }
    return {"type": "object", "required": ["text"], "properties": properties}


def _text(settings: Settings) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": settings.max_text_length}


def _speed(dialect: Dialect) -> Schema:
    return {"type": "number", "minimum": dialect.speed[0], "maximum": dialect.speed[1], "default": 1.0}


def _bounded(schema: Schema, most: int) -> Schema:
    """Bound the length of lists in a schema."""
    if schema.get("type") == "array":
        return schema | {"maxItems": most}
    if "anyOf" in schema:
        return schema | {"anyOf": [_bounded(option, most) for option in schema["anyOf"]]}
    return schema


def _all_replies() -> list[type[Struct]]:
    kinds = (value for value in vars(replies).values() if isinstance(value, type))
    return [kind for kind in kinds if issubclass(kind, replies.Reply) and kind is not replies.Reply]
