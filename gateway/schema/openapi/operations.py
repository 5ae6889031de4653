"""Descriptions of the routes: parameters, bodies and replies. A test compares them with the actual routes."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.http import voice_header
from gateway.http.forms import MULTIPART, URL_ENCODED
from gateway.http.replies import EVENT_STREAM, JSON, MSGPACK
from gateway.schema import replies
from gateway.schema.elevenlabs_fields import DEFAULT_OUTPUT, OUTPUT_FORMATS
from gateway.schema.openapi.schemas import (
    ELEVENLABS_SPEECH,
    FILE,
    ID,
    OPENAI_SPEECH,
    SPEECH,
    SPEECH_FORM,
    Schema,
    query_of_listing,
)

PAGE_TYPES = ("text/html", "text/css", "text/javascript", "image/svg+xml")
SOUND_TYPES = (
    *("audio/mpeg", "audio/wav", "audio/pcm", "audio/ogg", "audio/aac", "audio/flac"),
    *("audio/basic", "audio/x-alaw"),
)

LIVE = """A WebSocket. Messages are binary, each a msgpack map, in both directions.

A client sends `{"event": "start", "request": {…}}` with the fields of a speech request, whose `text` may be empty; then
`{"event": "text", "text": "…"}` as often as it has text, `{"event": "flush"}` for what is to be spoken before its
sentence ends, and `{"event": "stop"}` after the last. The server sends `{"event": "audio", "audio": …}`, whose bytes
joined are one stream in the format asked for, and then `{"event": "finish", "reason": "stop"}`. When something goes
wrong it sends `{"event": "error", "error": "…", "status": …, "code": "…"}` and
`{"event": "finish", "reason": "error", "message": "…"}`.
A new `start` breaks off what is being said, as closing the socket does. Events that are not known mean nothing."""


class Answer(Struct, frozen=True):
    """A reply of an operation: bodies by media type, and headers beyond those of every reply."""

    description: str
    content: dict[str, Schema] = {}
    headers: tuple[str, ...] = ()


class Operation(Struct, frozen=True):
    """An operation. ``headers``: of the request; ``errors``: status codes beyond those of all such routes."""

    tag: str
    summary: str
    answers: dict[int, Answer]
    bodies: dict[str, Schema] = {}
    query: dict[str, Schema] = {}
    headers: dict[str, Schema] = {}
    errors: tuple[int, ...] = ()
    description: str = ""


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(kind: type[Struct], status: int = 200) -> dict[int, Answer]:
    return {status: Answer(_first_words(kind), {JSON: named(kind.__name__)})}


def _either(kind: type[Struct]) -> dict[int, Answer]:
    """Describe a reply as JSON, or as msgpack on request."""
    return {200: Answer(_first_words(kind), {JSON: named(kind.__name__), MSGPACK: named(kind.__name__)})}


def _first_words(kind: type[Struct]) -> str:
    return (kind.__doc__ or kind.__name__).partition("\n")[0]


def _form(required: tuple[str, ...], **properties: Schema) -> dict[str, Schema]:
    return {MULTIPART: {"type": "object", "required": list(required), "properties": properties}}


def _fields(**properties: Schema) -> dict[str, Schema]:
    schema = {"type": "object", "required": list(properties), "properties": properties}
    return {JSON: schema, MSGPACK: schema, MULTIPART: schema}


_TEXT: Schema = {"type": "string", "minLength": 1}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_NAMING: dict[str, Any] = {"allOf": [named("VoiceNaming")]}
_AS_JSON: dict[str, Schema] = {"format": {"type": "string", "description": "json: the reply is JSON."}}
_OUTPUT_FORMAT: dict[str, Schema] = {
    "output_format": {"type": "string", "enum": list(OUTPUT_FORMATS), "default": DEFAULT_OUTPUT}
}
_CODES_HEADERS = ("X-Seed", "X-Sample-Rate", "X-Ignored-Fields", "X-Voice-Id")
_SOUND_HEADERS = (*_CODES_HEADERS, "X-Frames", "X-Finish-Reason")
_BY_VOICE: dict[str, Schema] = {
    voice_header.HEADER: {
        "type": "string",
        "description": "Requests with the same one go to the same group, where there are several. Not used otherwise.",
    }
}
_SOUND = {media_type: {"type": "string", "format": "binary"} for media_type in SOUND_TYPES}
_TEXT_PAGE: Schema = {"type": "string"}
_ROWS: Schema = {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}}
_CODES: Schema = {
    "type": "object",
    "required": ["tokens"],
    "properties": {"tokens": {"type": "array", "items": _ROWS, "description": "Ten rows of codes for each sound."}},
}
_ALIVE = _json(replies.Status)
_SPEECH_ERRORS = (429, 500, 503)
_VOICE_ERRORS = (409, 429, 500, 503, 507)
_NOT_CHANGED = Answer("The browser has it.", {})


def _elevenlabs_speech(how: str, answer: str) -> Operation:
    return Operation(
        "speech",
        f"Text to sound, {how}, for ElevenLabs' clients",
        {200: Answer(answer, _SOUND, _SOUND_HEADERS)},
        {JSON: named(ELEVENLABS_SPEECH), MSGPACK: named(ELEVENLABS_SPEECH)},
        query=_OUTPUT_FORMAT,
        headers=_BY_VOICE,
        errors=_SPEECH_ERRORS,
    )


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/v1/tts"): Operation(
        "speech",
        "Text to sound",
        {200: Answer("The sound, as it is made, or in one piece.", _SOUND, _SOUND_HEADERS)},
        {JSON: named(SPEECH), MSGPACK: named(SPEECH), MULTIPART: named(SPEECH_FORM)},
        headers=_BY_VOICE,
        errors=_SPEECH_ERRORS,
        description="The status waits for the first sound. What fails after it breaks the connection.",
    ),
    ("GET", "/v1/tts/live"): Operation(
        "speech",
        "Text as it is written to sound",
        {101: Answer("The WebSocket.")},
        query={"api_key": {"type": "string", "description": "For browsers, which can't set the header."}},
        headers=_BY_VOICE,
        errors=(403, 426, 429),
        description=LIVE,
    ),
    ("POST", "/v1/audio/speech"): Operation(
        "speech",
        "Text to sound, for OpenAI's clients",
        {200: Answer("The sound, as it is made, or in one piece.", _SOUND | {EVENT_STREAM: {}}, _SOUND_HEADERS)},
        {JSON: named(OPENAI_SPEECH), MSGPACK: named(OPENAI_SPEECH)},
        headers=_BY_VOICE,
        errors=(404, *_SPEECH_ERRORS),
    ),
    ("POST", "/v1/text-to-speech/{voice_id}"): _elevenlabs_speech("in one piece", "The sound."),
    ("POST", "/v1/text-to-speech/{voice_id}/stream"): _elevenlabs_speech("streamed", "The sound, as it is made."),
    ("GET", "/v1/voices"): Operation(
        "listings", "The voices, as ElevenLabs words them", _json(replies.ElevenLabsVoices)
    ),
    ("POST", "/v1/codes"): Operation(
        "speech",
        "Text to the codes of each frame",
        {200: Answer("An event for each frame, and one for the end.", {EVENT_STREAM: {}}, _CODES_HEADERS)},
        {JSON: named(SPEECH), MSGPACK: named(SPEECH), MULTIPART: named(SPEECH_FORM)},
        headers=_BY_VOICE,
        errors=_SPEECH_ERRORS,
    ),
    ("GET", "/v1/models"): Operation("listings", "The model, as OpenAI words it", _json(replies.Models)),
    ("GET", "/v1/models/{id}"): Operation(
        "listings", "The model by any of its names", _json(replies.ModelFacts), errors=(404,)
    ),
    ("GET", "/v1/audio/models"): Operation("listings", "The model", _json(replies.SpeechModels)),
    ("GET", "/v1/audio/voices"): Operation("listings", "The voices", _json(replies.ListedVoices)),
    ("POST", "/v1/audio/voices"): Operation(
        "voices",
        "A voice of a recording, as OpenAI words it",
        _json(replies.CreatedVoice),
        _form(("name", "audio_sample", "ref_text"), name=ID, audio_sample=FILE, ref_text=_TEXT),
        errors=_VOICE_ERRORS,
    ),
    ("GET", "/v1/test"): Operation("listings", "Tells that voices can be listed", _ALIVE),
    ("POST", "/v1/references/add"): Operation(
        "voices",
        "A voice of a recording, as Fish's server words it",
        _either(replies.ReferenceChanged),
        _form(("id", "text", "audio"), id=ID, text=_TEXT, audio=FILE),
        query=_AS_JSON,
        errors=_VOICE_ERRORS,
    ),
    ("GET", "/v1/references/list"): Operation("voices", "All ids", _either(replies.References), query=_AS_JSON),
    ("POST", "/v1/references/update"): Operation(
        "voices",
        "Give a voice another id",
        _either(replies.ReferenceRenamed),
        _fields(old_reference_id=ID, new_reference_id=ID),
        query=_AS_JSON,
        errors=(403, 404, 409),
    ),
    ("DELETE", "/v1/references/delete"): Operation(
        "voices",
        "Delete a voice",
        _either(replies.ReferenceChanged),
        _fields(reference_id=ID),
        query=_AS_JSON,
        errors=(403, 404),
    ),
    ("GET", "/model"): Operation(
        "voices", "The voices, as Fish words them", _json(replies.FishVoices), query=query_of_listing(), errors=(400,)
    ),
    ("POST", "/model"): Operation(
        "voices",
        "A voice of recordings",
        _json(replies.FishVoice, 201),
        {
            MULTIPART: _NAMING
            | {
                "type": "object",
                "required": ["title", "voices", "texts"],
                "properties": {"voices": {"type": "array", "items": FILE}, "texts": _TEXTS},
            }
        },
        errors=_VOICE_ERRORS,
    ),
    ("GET", "/model/{id}"): Operation("voices", "A voice", _json(replies.FishVoice), errors=(400, 404)),
    ("PATCH", "/model/{id}"): Operation(
        "voices",
        "Call a voice something else",
        _json(replies.FishVoice),
        {URL_ENCODED: _NAMING, MULTIPART: _NAMING},
        errors=(403, 404),
    ),
    ("DELETE", "/model/{id}"): Operation("voices", "Delete a voice", _json(replies.Deleted), errors=(403, 404)),
    ("POST", "/v1/vqgan/encode"): Operation(
        "codec",
        "Recordings to codes",
        {200: Answer("Ten rows of codes for each.", {MSGPACK: named("Tokens")})},
        {MSGPACK: {"type": "object", "required": ["audios"], "properties": {"audios": {"type": "array"}}}},
        errors=_SPEECH_ERRORS,
    ),
    ("POST", "/v1/vqgan/decode"): Operation(
        "codec",
        "Codes to sound",
        {200: Answer("Samples for each.", {MSGPACK: named("Sounds")})},
        {JSON: _CODES, MSGPACK: _CODES},
        errors=_SPEECH_ERRORS,
    ),
    ("POST", "/v1/asr"): Operation("codec", "Nothing: this server does not transcribe", {}, errors=(501,)),
    ("GET", "/v1/usage"): Operation("keys", "What this key has used", _json(replies.Usage), errors=(404,)),
    ("GET", "/wallet/self/api-credit"): Operation("keys", "Tells whether a key is good", _json(replies.Credit)),
    ("GET", "/wallet/self/package"): Operation("keys", "Tells whether a key is good", _json(replies.Package)),
    ("GET", "/v1/health"): Operation("health", "Whether the gateway answers", _ALIVE),
    ("POST", "/v1/health"): Operation("health", "Whether the gateway answers", _ALIVE),
    ("GET", "/health"): Operation("health", "The same, and what is not ready", _json(replies.Health)),
    ("GET", "/healthz"): Operation("health", "Whether the gateway answers", _ALIVE),
    ("GET", "/livez"): Operation("health", "Whether the gateway answers", _ALIVE),
    ("GET", "/readyz"): Operation(
        "health",
        "Whether speech can be served",
        _ALIVE | {503: Answer("Not now.", {JSON: named("NotReady")}, ("Retry-After",))},
    ),
    ("GET", "/version"): Operation("health", "What runs here", _json(replies.Version)),
    ("GET", "/status"): Operation("health", "How busy it is", _json(replies.PageStatus)),
    ("GET", "/metrics"): Operation(
        "health",
        "Metrics of all processes, for Prometheus",
        {200: Answer("Samples.", {"text/plain": _TEXT_PAGE})},
    ),
    ("GET", "/debug/requests"): Operation(
        "debug", "Requests under way and the last that ended", _json(replies.DebugRequests)
    ),
    ("GET", "/debug/requests/{id}"): Operation(
        "debug", "The timeline of a request", _json(replies.DebugTimeline), errors=(404,)
    ),
    ("GET", "/debug/requests/{id}/trace"): Operation(
        "debug", "A request through the whole pipeline, for Perfetto", _json(replies.Trace), errors=(404,)
    ),
    ("GET", "/debug/trace"): Operation(
        "debug",
        "The last seconds of the whole pipeline, for Perfetto",
        _json(replies.Trace),
        query={"seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 60, "default": 10}},
        errors=(400,),
    ),
    ("GET", "/openapi.json"): Operation("page", "This description", {200: Answer("OpenAPI.", {JSON: {}})}),
    ("GET", "/"): Operation(
        "page", "The web page", {200: Answer("The page.", {"text/html": _TEXT_PAGE}), 304: _NOT_CHANGED}
    ),
    ("GET", "/web/{name}"): Operation(
        "page",
        "A part of the web page",
        {
            200: Answer("The part.", dict.fromkeys(PAGE_TYPES, _TEXT_PAGE)),
            304: _NOT_CHANGED,
        },
        errors=(404,),
    ),
}
