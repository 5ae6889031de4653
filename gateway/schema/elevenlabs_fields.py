"""Body and query of ElevenLabs' speech endpoints, translated to Fish's fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from gateway.audio import Format
from gateway.http.errors import invalid
from gateway.schema.fields import convert, tidied

NAMES = {"format": "output_format", "prosody.speed": "voice_settings.speed", "reference_id": "voice_id"}
"""Names of Fish's fields in these requests, for errors."""

DEFAULT_OUTPUT = "mp3_44100_128"


class OutputFormat(NamedTuple):
    """A format, its rate in samples/s, and its bit rate in kbit/s; 0: it has none."""

    format: Format
    rate: int
    kilobits: int = 0


_RATES = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
OUTPUT_FORMATS = {
    "mp3_22050_32": OutputFormat("mp3", 22_050, 32),
    "mp3_24000_48": OutputFormat("mp3", 24_000, 48),
    "mp3_44100": OutputFormat("mp3", 44_100, 128),
    **{f"mp3_44100_{bits}": OutputFormat("mp3", 44_100, bits) for bits in (32, 64, 96, 128, 192)},
    **{f"opus_48000_{bits}": OutputFormat("opus", 48_000, bits) for bits in (32, 64, 96, 128, 192)},
    **{f"pcm_{rate}": OutputFormat("pcm", rate) for rate in _RATES},
    **{f"wav_{rate}": OutputFormat("wav", rate) for rate in _RATES},
    "ulaw_8000": OutputFormat("ulaw", 8_000),
    "alaw_8000": OutputFormat("alaw", 8_000),
}
"""Formats by the names that ``output_format`` has for them."""


class VoiceSettings(Struct, frozen=True):
    """``stability``: 1 less the temperature. ``speed``: pace, at the same pitch."""

    stability: Annotated[float, Meta(ge=0, le=1)] | None = None
    speed: Annotated[float, Meta(ge=0.7, le=1.2)] = 1.0
    # Checked, without effect.
    similarity_boost: Annotated[float, Meta(ge=0, le=1)] | None = None
    style: Annotated[float, Meta(ge=0, le=1)] | None = None
    use_speaker_boost: bool = True


class ElevenLabsFields(Struct, frozen=True):
    """Fields that have an effect, and those that are checked without one."""

    text: str
    voice_settings: VoiceSettings = VoiceSettings()
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    apply_text_normalization: Literal["auto", "on", "off"] = "auto"
    # Checked, without effect.
    model_id: str = ""
    language_code: str = ""
    previous_text: str = ""
    next_text: str = ""


class ElevenLabsRequest(NamedTuple):
    """A translated request: ``values`` by Fish's names, without a voice, and the format of the sound."""

    values: dict[Any, Any]
    output: OutputFormat


def translate(values: dict[Any, Any], output_format: str, streaming: bool) -> ElevenLabsRequest:
    """Translate a body without nulls. Fields that aren't known stay.

    Raises:
        ApiError: 400, naming the field.
    """
    output = OUTPUT_FORMATS.get(output_format)
    if output is None:
        raise invalid("output_format", f"{output_format!r} is not known; known: {', '.join(OUTPUT_FORMATS)}")
    given = tidied({name: value for name, value in values.items() if isinstance(name, str)}, keep=("text",))
    known = [name for name in ElevenLabsFields.__struct_fields__ if name in given]
    own = convert({name: given.pop(name) for name in known}, ElevenLabsFields)
    given |= {
        "text": own.text,
        "format": output.format,
        "streaming": streaming,
        "normalize": own.apply_text_normalization != "off",
        "prosody": {"speed": own.voice_settings.speed},
    }
    if own.seed is not None:
        given["seed"] = own.seed
    if own.voice_settings.stability is not None:
        given["temperature"] = 1 - own.voice_settings.stability
    if output.format == "opus":
        given["opus_bitrate"] = output.kilobits
    else:
        given["sample_rate"] = output.rate
    return ElevenLabsRequest(given, output)
