"""Output format of a request, and the formats that are available."""

from __future__ import annotations

import importlib.util
from typing import Literal, TypeAlias

from msgspec import Struct

from gateway.errors import InvalidFieldError

Format: TypeAlias = Literal["mp3", "wav", "pcm", "opus", "aac", "flac", "ulaw", "alaw", "wav_ulaw", "wav_alaw"]

RATES = (8_000, 48_000)  # lowest and highest that can be asked for
OPUS_AUTO = 48_000  # bit/s, of a mono voice: transparent
CODECS = importlib.util.find_spec("av") is not None  # the extra ``codecs`` is installed

# What clients of telephony, and OpenAI's Realtime API, call the two laws at 8 kHz.
_TELEPHONY: dict[Format, tuple[str, ...]] = {
    "ulaw": ("mulaw", "ulaw_8000", "pcm_mulaw", "g711_ulaw", "audio/basic", "audio/pcmu", "audio/x-mulaw"),
    "alaw": ("alaw_8000", "pcm_alaw", "g711_alaw", "audio/pcma", "audio/x-alaw"),
    "wav_ulaw": ("wav_mulaw",),
}
ALIASES = {alias: name for name, aliases in _TELEPHONY.items() for alias in aliases}
"""Other names of formats; a media type may be followed by ``;rate=8000``."""

_NEED_CODECS = ("opus", "aac", "flac")
_OPUS_RATE = 48_000
_OPUS_BITS = (6_000, 256_000)
# Sample rates for which MPEG-1, 2 and 2.5 layer III (and AAC, among others) are defined.
_MPEG = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_KNOWN_RATES = {"mp3": _MPEG, "aac": _MPEG, "opus": (8_000, 12_000, 16_000, 24_000, 48_000)}
_KNOWN_RATES |= dict.fromkeys(("ulaw", "alaw", "wav_ulaw", "wav_alaw"), (8_000,))


class Delivery(Struct, frozen=True):
    """Output format: ``rate`` in samples/s, ``volume`` in dB, ``mp3_bitrate`` in kbit/s, ``opus_bitrate`` in bit/s."""

    format: Format
    rate: int
    speed: float = 1.0
    volume: float = 0.0
    mp3_bitrate: int = 128
    opus_bitrate: int = OPUS_AUTO


def format_named(name: str) -> str:
    """Return the format that one of its other names means; any other name as it is."""
    media_type, _, parameter = name.partition(";")
    known = name if parameter.strip() != "rate=8000" else media_type.strip()
    return ALIASES.get(known, name)


def rate_of(sound_format: Format, asked: int | None, model_rate: int, pcm_rate: int) -> int:
    """Return the output rate: ``asked``, else ``pcm_rate`` for headerless samples, else the model's or the next above.

    Raises:
        InvalidFieldError: naming ``sample_rate``: the format has no such rate.
    """
    if asked is not None:
        _check_rate(sound_format, asked)
    if sound_format == "opus":
        return _OPUS_RATE  # of every decoder, whatever went in
    if asked is not None:
        return asked
    if sound_format == "pcm":
        return pcm_rate
    known = _KNOWN_RATES.get(sound_format, (model_rate,))
    return min((rate for rate in known if rate >= model_rate), default=known[-1])


def _check_rate(sound_format: Format, rate: int) -> None:
    lowest, highest = RATES
    if not lowest <= rate <= highest:
        raise InvalidFieldError("sample_rate", f"{rate} is not {lowest} to {highest}")
    known = _KNOWN_RATES.get(sound_format)
    if known is not None and rate not in known:
        raise InvalidFieldError(
            "sample_rate", f"{sound_format} can't have {rate}; it can have {', '.join(map(str, known))}"
        )


def check_codecs(sound_format: Format, speed: float) -> None:
    """Check that this installation can encode such sound.

    Raises:
        InvalidFieldError: naming ``format`` or ``prosody.speed``: the extra ``codecs`` is needed and not installed.
    """
    if CODECS:
        return
    if sound_format in _NEED_CODECS:
        raise InvalidFieldError(
            "format", f"{sound_format} needs the extra 'codecs' (PyAV), which is not installed here"
        )
    if speed != 1:
        raise InvalidFieldError(
            "prosody.speed", "other than 1 needs the extra 'codecs' (PyAV), which is not installed here"
        )


def opus_bits(value: int) -> int:
    """Convert a client's Opus bit rate to bit/s: values below 1000 are kbit/s; 0 and below mean automatic."""
    if value <= 0:
        return OPUS_AUTO
    lowest, highest = _OPUS_BITS
    return min(highest, max(lowest, value * 1000 if value < 1000 else value))
