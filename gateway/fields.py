"""The fields of a speech request: names of Fish's API, types, ranges and defaults, the same at every door."""

from __future__ import annotations

import math
import re
import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from common.config import Gateway as Settings
from common.messages import Sampling
from gateway.errors import ApiError, invalid
from gateway.model import ServedModel
from gateway.prompt import spoken_part
from gateway.sound import Format

VOICE_ID = r"[A-Za-z0-9_\- ]{1,255}"

_MAX_NAMED_FIELDS = 20
_SANE_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_MISSING = re.compile(r"missing required field `(\w+)`")


class UploadedReference(Struct, frozen=True):
    """A recording in the request itself. ``audio`` is binary in msgpack and base64 in JSON."""

    audio: bytes
    text: str


class SpeechRequest(Struct, frozen=True):
    """A valid request. ``ignored``: names of fields that mean nothing here."""

    text: str
    format: Format
    streaming: bool
    sampling: Sampling
    max_frames: int
    chunk_length: int
    reference_id: str | None
    references: list[UploadedReference]
    mp3_bitrate: int
    ignored: list[str]


class _Prosody(Struct, frozen=True):
    speed: Annotated[float, Meta(ge=0.5, le=2)] = 1.0
    volume: Annotated[float, Meta(ge=-20, le=20)] = 0.0
    normalize_loudness: bool = True


class _Fields(Struct, frozen=True):
    text: str
    format: Format = "mp3"
    streaming: bool = True
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=256)] | None = None
    max_new_tokens: Annotated[int, Meta(ge=0)] = 0
    chunk_length: Annotated[int, Meta(ge=100, le=1000)] = 200
    reference_id: Annotated[str, Meta(pattern=f"^{VOICE_ID}\\Z")] | None = None
    references: list[UploadedReference] = []
    mp3_bitrate: Literal[64, 128, 192] = 128
    sample_rate: Annotated[int, Meta(ge=1)] | None = None
    prosody: _Prosody = _Prosody()
    # Accepted and checked, since clients send them; they have no effect.
    repetition_penalty: Annotated[float, Meta(ge=0.9, le=2)] = 1.0
    latency: Literal["normal", "balanced", "low"] = "normal"
    normalize: bool = True
    use_memory_cache: Literal["on", "off"] = "off"
    min_chunk_length: Annotated[int, Meta(ge=0, le=100)] = 50
    condition_on_previous_chunks: bool = True
    early_stop_threshold: Annotated[float, Meta(ge=0, le=1)] = 1.0
    opus_bitrate: Annotated[int, Meta(ge=-1000, le=512_000)] = -1000
    features: list[str] = []


def parse(values: dict[Any, Any], model: ServedModel, settings: Settings) -> SpeechRequest:
    """Check the fields of a body, nulls left out already.

    Raises:
        ApiError: 400, naming the field.
    """
    fields = _convert(values)
    check_text(fields.text, "text", model, settings)
    for index, reference in enumerate(fields.references):
        check_text(reference.text, f"references[{index}].text", model, settings)
    _refuse_unsupported(fields, model)
    if fields.max_new_tokens > model.context:
        raise invalid("max_new_tokens", f"is more than the context of {model.context}")
    return SpeechRequest(
        text=fields.text,
        format=fields.format,
        streaming=fields.streaming,
        sampling=_sampling(fields, model),
        max_frames=_max_frames(fields, model, settings),
        chunk_length=fields.chunk_length,
        reference_id=fields.reference_id,
        references=[] if fields.reference_id is not None else fields.references,
        mp3_bitrate=fields.mp3_bitrate,
        ignored=_unknown(values),
    )


def check_text(text: str, param: str, model: ServedModel, settings: Settings) -> None:
    """Whether a text can be spoken, or be that of a reference.

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


def _convert(values: dict[Any, Any]) -> _Fields:
    try:
        return msgspec.convert({name: value for name, value in values.items() if isinstance(name, str)}, _Fields)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        path = place.removesuffix("`").removeprefix(".")
        missing = _MISSING.search(problem)
        if missing is None:
            raise invalid(path, problem) from None
        param = f"{path}.{missing[1]}".removeprefix(".")
        raise ApiError(400, "missing_field", f"{param}: required", param) from None


def _refuse_unsupported(fields: _Fields, model: ServedModel) -> None:
    """What would change the sound and is not built must not be passed over in silence."""
    if fields.sample_rate not in (None, model.sample_rate):
        raise invalid("sample_rate", f"{fields.sample_rate} is not supported yet; the model's is {model.sample_rate}")
    if fields.prosody.speed != 1:
        raise invalid("prosody.speed", "other than 1 is not supported yet")
    if fields.prosody.volume != 0:
        raise invalid("prosody.volume", "other than 0 is not supported yet")


def _sampling(fields: _Fields, model: ServedModel) -> Sampling:
    """A temperature of the request holds for all codes; the checkpoint may set another for codebooks 1 to 9."""
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


def _max_frames(fields: _Fields, model: ServedModel, settings: Settings) -> int:
    """The least of what the request allows, the context, and a cap in proportion to the text with a floor."""
    seconds = max(settings.min_frames_cap_seconds, settings.seconds_per_byte_cap * len(fields.text.encode()))
    cap = min(math.ceil(seconds * model.frame_rate), model.context)
    return min(cap, fields.max_new_tokens or cap)


def _unknown(values: dict[Any, Any]) -> list[str]:
    """Names of unknown fields, for a header: odd names and long lists are left out."""
    names = [name for name in values if name not in _Fields.__struct_fields__ and isinstance(name, str)]
    return [name for name in names if _SANE_NAME.fullmatch(name)][:_MAX_NAMED_FIELDS]
