"""Bodies of JSON and msgpack replies. The endpoints return these, and the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from gateway.voices.catalogue import Visibility


class Reply(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of replies: every field is always present, and there are no others."""


class Problem(Reply, frozen=True):
    """An error. ``param`` names the field at fault."""

    message: str
    type: Literal[
        "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "server_error"
    ]
    param: str | None
    code: str


class Error(Reply, frozen=True):
    """An error in the fields of several API families."""

    status: int
    message: str
    detail: str
    error: Problem


class Status(Reply, frozen=True):
    """A status and nothing else."""

    status: str


class Health(Reply, frozen=True):
    """Health of the server. ``reasons``: why it is not ready, by process."""

    status: Literal["ok"]
    ready: bool
    reasons: dict[str, str]


class NotReady(Reply, frozen=True):
    """The server is not ready. ``reasons``: why, by process."""

    status: Literal["not ready"]
    reasons: dict[str, str]


class Version(Reply, frozen=True):
    """Version of the server, and the model it serves."""

    name: Literal["shoal"]
    version: str
    model: str
    sample_rate: int


class PageStatus(Reply, frozen=True):
    """State of the server, as the web page shows it."""

    ready: bool
    model: str
    sample_rate: int
    running: int
    waiting: int


class Usage(Reply, frozen=True):
    """Usage of a key since the start."""

    key: str
    since: str
    requests: int
    characters: int
    audio_seconds: float


class Owned(Reply, frozen=True):
    """Fields that Fish's account objects begin with."""

    id: str = field(name="_id")
    user_id: str
    created_at: str
    updated_at: str


class Credit(Owned, frozen=True):
    """A stub, by which clients check a key."""

    credit: str
    has_free_credit: bool
    has_phone_sha256: bool


class Package(Owned, frozen=True):
    """A stub, by which clients check a key."""

    type: str
    total: int
    balance: int
    finished_at: str


class Model(Reply, frozen=True):
    """A model in the form of OpenAI's API."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(Reply, frozen=True):
    object: Literal["list"]
    data: list[Model]


class VoiceTitle(Reply, frozen=True):
    name: str


class ModelFacts(Model, frozen=True):
    """A model with its abilities."""

    task: Literal["text-to-speech"]
    sample_rate: int
    voices: list[VoiceTitle]


class ModelId(Reply, frozen=True):
    id: str


class SpeechModels(Reply, frozen=True):
    models: list[ModelId]


class ListedVoice(Reply, frozen=True):
    id: str
    name: str


class ListedVoices(Reply, frozen=True):
    voices: list[ListedVoice]


class ElevenLabsVoice(Reply, frozen=True):
    """A voice in the form of ElevenLabs' API."""

    voice_id: str
    name: str
    category: str = "cloned"


class ElevenLabsVoices(Reply, frozen=True):
    """The voices in the form of ElevenLabs' API."""

    voices: list[ElevenLabsVoice]


class CreatedVoice(Reply, frozen=True):
    """A new voice in the form of OpenAI's API."""

    id: str
    object: Literal["audio.voice"]
    name: str
    created_at: int
    type: Literal["audio_sample"]


class Author(Reply, frozen=True):
    id: str = field(name="_id")
    nickname: str
    avatar: str = ""


class FishVoice(Reply, frozen=True, kw_only=True):
    """A voice in the form of Fish's API. Fields without a meaning here have fixed values."""

    id: str = field(name="_id")
    type: Literal["tts"] = "tts"
    title: str
    description: str
    cover_image: str = ""
    train_mode: Literal["fast"] = "fast"
    state: Literal["trained"] = "trained"
    tags: list[str]
    samples: list[str] = []
    created_at: str
    updated_at: str
    languages: list[str] = []
    visibility: Visibility
    lock_visibility: bool = False
    like_count: int = 0
    mark_count: int = 0
    shared_count: int = 0
    task_count: int = 0
    unliked: bool = False
    liked: bool = False
    marked: bool = False
    author: Author


class FishVoices(Reply, frozen=True):
    """A page of a listing. ``total``: on all pages."""

    total: int
    items: list[FishVoice]


class Deleted(Reply, frozen=True):
    status: int
    message: str


class ReferenceChanged(Reply, frozen=True):
    """A voice was added or deleted."""

    success: bool
    message: str
    reference_id: str


class ReferenceRenamed(Reply, frozen=True):
    success: bool
    message: str
    old_reference_id: str
    new_reference_id: str


class References(Reply, frozen=True):
    """All ids, sorted."""

    success: bool
    message: str
    reference_ids: list[str]


class Tokens(Reply, frozen=True):
    """Ten rows of codes for each recording."""

    tokens: list[list[list[int]]]


class Sounds(Reply, frozen=True):
    """Samples for each array of codes: float16, little-endian, at the model's rate."""

    audios: list[bytes]


class DebugRequest(Reply, frozen=True):
    """A speech request. ``received``: seconds since 1970; ``outcome``: null while it runs."""

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


class DebugRequests(Reply, frozen=True):
    """Speech requests, newest first."""

    requests: list[DebugRequest]


class DebugTimeline(DebugRequest, frozen=True):
    """A speech request with its events. ``at``: seconds since the request was received."""

    events: list[dict[str, Any]]
    chunks_left_out: int
    scheduler_answered: bool


class Trace(Reply, frozen=True, rename="camel"):
    """Events in Chrome's JSON format."""

    trace_events: list[dict[str, Any]]
    display_time_unit: str
    other_data: dict[str, Any]
