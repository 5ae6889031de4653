"""What JSON and msgpack replies hold, for the description."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from gateway.voices.catalogue import Visibility


class Reply(Struct, forbid_unknown_fields=True):
    """Every field that is not marked optional is always there, and there are no others."""


class Problem(Reply):
    """What went wrong. ``param`` names the field at fault."""

    message: str
    type: Literal[
        "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "server_error"
    ]
    param: str | None
    code: str


class Error(Reply):
    """The same in the words of several API families."""

    status: int
    message: str
    detail: str
    error: Problem


class Status(Reply):
    """An answer is all there is to say."""

    status: str


class Health(Reply):
    """``reasons``: what is not ready, by process."""

    status: Literal["ok"]
    ready: bool
    reasons: dict[str, str]


class NotReady(Reply):
    """``reasons``: what is not ready, by process."""

    status: Literal["not ready"]
    reasons: dict[str, str]


class Version(Reply):
    """``sample_rate``: of the model."""

    name: Literal["shoal"]
    version: str
    model: str
    sample_rate: int


class PageStatus(Reply):
    """What the web page shows."""

    ready: bool
    model: str
    sample_rate: int
    running: int
    waiting: int


class Usage(Reply):
    """What a key has used since the start."""

    key: str
    since: str
    requests: int
    characters: int
    audio_seconds: float


class Credit(Reply):
    """A stub, by which clients check a key."""

    id: str = field(name="_id")
    user_id: str
    created_at: str
    updated_at: str
    credit: str
    has_free_credit: bool
    has_phone_sha256: bool


class Package(Reply):
    """A stub, by which clients check a key."""

    id: str = field(name="_id")
    user_id: str
    created_at: str
    updated_at: str
    type: str
    total: int
    balance: int
    finished_at: str


class Model(Reply):
    """A model, as OpenAI words it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(Reply):
    object: Literal["list"]
    data: list[Model]


class VoiceTitle(Reply):
    name: str


class ModelFacts(Model):
    """A model, and what it can do."""

    task: Literal["text-to-speech"]
    sample_rate: int
    voices: list[VoiceTitle]


class ModelId(Reply):
    id: str


class SpeechModels(Reply):
    models: list[ModelId]


class ListedVoice(Reply):
    id: str
    name: str


class ListedVoices(Reply):
    voices: list[ListedVoice]


class CreatedVoice(Reply):
    """A new voice, as OpenAI words it."""

    id: str
    object: Literal["audio.voice"]
    name: str
    created_at: int
    type: Literal["audio_sample"]


class Author(Reply):
    id: str = field(name="_id")
    nickname: str
    avatar: str


class FishVoice(Reply):
    """A voice, as Fish words it. What means nothing here is empty."""

    id: str = field(name="_id")
    type: Literal["tts"]
    title: str
    description: str
    cover_image: str
    train_mode: Literal["fast"]
    state: Literal["trained"]
    tags: list[str]
    samples: list[str]
    created_at: str
    updated_at: str
    languages: list[str]
    visibility: Visibility
    lock_visibility: bool
    like_count: int
    mark_count: int
    shared_count: int
    task_count: int
    unliked: bool
    liked: bool
    marked: bool
    author: Author


class FishVoices(Reply):
    """A page of a listing. ``total``: on all pages."""

    total: int
    items: list[FishVoice]


class Deleted(Reply):
    status: int
    message: str


class ReferenceChanged(Reply):
    """A voice was added or deleted."""

    success: bool
    message: str
    reference_id: str


class ReferenceRenamed(Reply):
    success: bool
    message: str
    old_reference_id: str
    new_reference_id: str


class References(Reply):
    """All ids, sorted."""

    success: bool
    message: str
    reference_ids: list[str]


class Tokens(Reply):
    """Ten rows of codes for each recording."""

    tokens: list[list[list[int]]]


class Sounds(Reply):
    """Samples for each of the codes: float16, little-endian, at the rate of the model."""

    audios: list[bytes]


class DebugRequest(Reply):
    """A speech request. ``received``: seconds since 1970; ``outcome``: null as long as it goes on."""

    received: float
    request_id: str
    trace_id: str
    engine_request: str
    api: str
    format: str
    voice_hash: str
    chars: int
    seconds: float
    ttfa_ms: float | None
    audio_s: float
    rtf: float | None
    frames: int
    chunks: int
    underrun_ms: float | None
    outcome: str | None
    error: str | None


class DebugRequests(Reply):
    """Speech requests, newest first."""

    requests: list[DebugRequest]


class DebugTimeline(DebugRequest):
    """A speech request, and what became of it: each event with its name, ``at`` seconds after it was received."""

    events: list[dict[str, Any]]
    chunks_left_out: int
    scheduler_answered: bool


class Trace(Reply, rename="camel"):
    """Events in Chrome's JSON format."""

    trace_events: list[dict[str, Any]]
    display_time_unit: str
    other_data: dict[str, Any]
