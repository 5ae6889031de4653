"""Fields of a speech request under the names of Fish's API: types, ranges and defaults for all endpoints."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from common.config import Gateway as Settings
from common.messages import Priority, Sampling
from gateway.audio import Delivery, Format, check_codecs, format_named, opus_bits, rate_of
from gateway.checkpoint.prompt import spoken_part
from gateway.checkpoint.served_model import ServedModel
from gateway.http.errors import ApiError, invalid
from gateway.schema.reference_fields import Clip, ReferenceId, References, clips, voice_ids, with_plain_audio

T = TypeVar("T")

CHOICES = ("format", "latency", "use_memory_cache", "priority", "stream_format")
"""Fields that take one of a few names."""

_MAX_NAMED_FIELDS = 20
_SANE_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_MISSING = re.compile(r"missing required field `(\w+)`")


class Dialect(NamedTuple):
    """Differences between the API families: the default rate of headerless PCM, and the range of ``speed``."""

    pcm_rate: int
    speed: tuple[float, float]


FISH = Dialect(44_100, (0.5, 2.0))
OPENAI = Dialect(24_000, (0.25, 4.0))


class SpeechRequest(Struct, frozen=True):
    """A valid request. ``voices``: ids, one per speaker; or ``clips``: recordings in the request itself.

    ``max_new_tokens``: most frames of the reply, 0: as the text allows.
    ``normalize``: whether numbers may be read out in words.

    ``ignored``: names of fields that mean nothing here.
    """

    text: str
    delivery: Delivery
    streaming: bool
    sampling: Sampling
    max_new_tokens: int
    chunk_length: int
    normalize: bool
    priority: Priority
    voices: list[str]
    clips: list[Clip]
    ignored: list[str]


class Prosody(Struct, frozen=True):
    """Prosody of the speech. The range of ``speed`` depends on the dialect."""

    speed: float = 1.0
    volume: Annotated[float, Meta(ge=-20, le=20)] = 0.0
    normalize_loudness: bool = True  # checked, without effect


class Fields(Struct, frozen=True):
    """Fields as sent, without nulls."""

    text: str
    format: Format = "mp3"
    streaming: bool = True
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=256)] | None = None
    max_new_tokens: Annotated[int, Meta(ge=0)] = 0
    chunk_length: Annotated[int, Meta(ge=100, le=1000)] = 200
    reference_id: ReferenceId = None
    references: References = []
    mp3_bitrate: Literal[64, 128, 192] = 128
    opus_bitrate: Annotated[int, Meta(ge=-1000, le=512_000)] = -1000
    sample_rate: int | None = None
    prosody: Prosody = Prosody()
    normalize: bool = True
    priority: Priority = "interactive"
    # Accepted and checked, since clients send them; they have no effect.
    repetition_penalty: Annotated[float, Meta(ge=0.9, le=2)] = 1.0
    latency: Literal["normal", "balanced", "low"] = "normal"
    use_memory_cache: Literal["on", "off"] = "off"
    min_chunk_length: Annotated[int, Meta(ge=0, le=100)] = 50
    condition_on_previous_chunks: bool = True
    early_stop_threshold: Annotated[float, Meta(ge=0, le=1)] = 1.0
    features: list[str] = []


def parse(
    values: dict[Any, Any], model: ServedModel, settings: Settings, dialect: Dialect = FISH, live: bool = False
) -> SpeechRequest:
    """Validate the fields of a body without nulls. ``live``: the text may come later.

    Raises:
        ApiError: 400, naming the field.
    """
    fields = _convert({"text": ""} | values if live else values)
    if fields.text or not live:
        check_text(fields.text, "text", model, settings)
    recordings = clips(fields.references, settings.max_references)
    for clip in recordings:
        check_text(clip.text, f"{clip.param}.text", model, settings)
    named = voice_ids(fields.reference_id, settings.max_references)
    voices = [voice for name in named if (voice := settings.fish_voices.get(name, name))]
    if fields.max_new_tokens > model.context:
        raise invalid("max_new_tokens", f"is more than the context of {model.context}")
    return SpeechRequest(
        text=fields.text,
        delivery=_delivery(fields, model, dialect),
        streaming=fields.streaming,
        sampling=_sampling(fields, model),
        max_new_tokens=fields.max_new_tokens,
        chunk_length=fields.chunk_length,
        normalize=fields.normalize,
        priority=fields.priority,
        voices=voices,
        clips=[] if voices else recordings,
        ignored=_unknown(values),
    )


def check_text(text: str, param: str, model: ServedModel, settings: Settings) -> None:
    """Check that a text can be spoken or be the transcript of a reference.

    Raises:
        ApiError: 400, naming ``param``.
    """
    if len(text) > settings.max_text_length:
        raise invalid(param, f"has {len(text)} characters, more than {settings.max_text_length}")
    if not spoken_part(text).strip():
        raise invalid(param, "is blank")
    token = model.prompts.reserved_token(text)
    if token is not None:
        raise invalid(param, f"holds {token}, which is reserved for the model")


def _convert(values: dict[Any, Any]) -> Fields:
    named = tidied({name: value for name, value in values.items() if isinstance(name, str)}, keep=("text",))
    if "references" in named:
        named["references"] = with_plain_audio(named["references"])
    if isinstance(named.get("format"), str):
        named["format"] = format_named(named["format"])
    return convert(named, Fields)


def tidied(values: dict[str, Any], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Tidy fields of drop-down menus and settings pages: blank strings count as absent, names lose case and blanks.

    ``keep``: fields whose strings stay unchanged. A list of nothing but blank strings is blank.
    """
    return {
        name: value.strip().lower() if name in CHOICES and isinstance(value, str) else value
        for name, value in values.items()
        if name in keep or not _blank(value)
    }


def _blank(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) and not one.strip() for one in value)


def convert(values: dict[str, Any], kind: type[T], strict: bool = True) -> T:
    """Convert values to a Struct, which declares their types and ranges. ``strict``: numbers may not be strings.

    Raises:
        ApiError: 400, naming the field.
    """
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        path = place.removesuffix("`").removeprefix(".")
        missing = _MISSING.search(problem)
        if missing is None:
            raise invalid(path, problem + _choices(kind, path, problem)) from None
        param = f"{path}.{missing[1]}".removeprefix(".")
        raise ApiError(400, "missing_field", f"{param}: required", param) from None


def _choices(kind: type[Any], path: str, problem: str) -> str:
    """The accepted names of a field, if an unknown one is the problem."""
    if not problem.startswith("Invalid enum value"):
        return ""
    hint = get_type_hints(kind).get(path)
    names = [name for part in (hint, *get_args(hint)) for name in get_args(part) if isinstance(name, str | int)]
    return f"; known: {', '.join(map(str, names))}" if names else ""


def _delivery(fields: Fields, model: ServedModel, dialect: Dialect) -> Delivery:
    slowest, fastest = dialect.speed
    if not slowest <= fields.prosody.speed <= fastest:
        raise invalid("prosody.speed", f"{fields.prosody.speed:g} is not {slowest:g} to {fastest:g}")
    check_codecs(fields.format, fields.prosody.speed)
    return Delivery(
        format=fields.format,
        rate=rate_of(fields.format, fields.sample_rate, model.sample_rate, dialect.pcm_rate),
        speed=fields.prosody.speed,
        volume=fields.prosody.volume,
        mp3_bitrate=fields.mp3_bitrate,
        opus_bitrate=opus_bits(fields.opus_bitrate),
    )


def _sampling(fields: Fields, model: ServedModel) -> Sampling:
    """Build the sampling. A request's temperature applies to all codebooks; a checkpoint may set two."""
    defaults = model.defaults
    temperature = defaults.temperature if fields.temperature is None else fields.temperature
    fast = defaults.fast_temperature if fields.temperature is None else None
    return Sampling(
        temperature=temperature,
        fast_temperature=temperature if fast is None else fast,
        top_p=defaults.top_p if fields.top_p is None else fields.top_p,
        top_k=defaults.top_k if fields.top_k is None else fields.top_k,
        seed=secrets.randbits(63) if fields.seed is None else fields.seed,
    )


def _unknown(values: dict[Any, Any]) -> list[str]:
    """Return the names of unknown fields for a header, without odd names and beyond a number of them."""
    names = [name for name in values if name not in Fields.__struct_fields__ and isinstance(name, str)]
    return [name for name in names if _SANE_NAME.fullmatch(name)][:_MAX_NAMED_FIELDS]
