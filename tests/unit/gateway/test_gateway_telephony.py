"""Telephony: µ-law and A-law at 8 kHz, raw and in WAV, under the names that its clients use."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import av
import msgspec
import numpy as np
import pytest
import soxr
from gateway_fakes import HOP, RATE, post, run, serving, speak, tone
from gateway_sound import noise_db
from hypothesis import given, settings
from hypothesis import strategies as st

from common.messages import Array
from gateway.audio import Delivery, Pipeline

LAWS = ["ulaw", "alaw"]
FORMATS = [*LAWS, "wav_ulaw", "wav_alaw"]
SILENCE = {"ulaw": 0xFF, "alaw": 0xD5}
WAV_HEADER = 58  # with the two bytes and the fact chunk of codes other than PCM
NAMES = {
    "ulaw": ["ulaw", "mulaw", "ulaw_8000", "pcm_mulaw", "g711_ulaw", "audio/pcmu", "audio/PCMU;rate=8000"],
    "alaw": ["alaw", "alaw_8000", "pcm_alaw", "g711_alaw", "audio/x-alaw", " audio/PCMA; rate=8000 "],
    "wav_ulaw": ["wav_ulaw", "WAV_MULAW"],
    "wav_alaw": ["wav_alaw"],
}


def decoded(sound_format: str, data: bytes) -> Array:
    """Samples float32 [n] as FFmpeg decodes them."""
    law = sound_format.removeprefix("wav_")
    container, options = ("wav", {}) if sound_format != law else (law.replace("ulaw", "mulaw"), {"sample_rate": "8000"})
    with av.open(io.BytesIO(data), format=container, options=options) as file:
        assert file.streams.audio[0].codec_context.name == f"pcm_{law.replace('ulaw', 'mulaw')}"
        assert (file.streams.audio[0].rate, file.streams.audio[0].channels) == (8_000, 1)
        return np.concatenate([frame.to_ndarray().reshape(-1) for frame in file.decode(audio=0)]) / np.float32(32768)


def encode(sound_format: str, samples: Array, cuts: list[int], rate: int = 8_000) -> bytes:
    into = Pipeline(Delivery(sound_format, 8_000), rate)
    return b"".join(into.encode(part) for part in np.split(samples, cuts)) + into.flush()


@pytest.mark.parametrize("sound_format", FORMATS)
@pytest.mark.parametrize("streaming", [True, False])
def test_each_form_has_the_whole_sound(tmp_path: Path, sound_format: str, streaming: bool) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 2, 7)
            reply, body = await post(client, text="hello", format=sound_format, streaming=streaming)
            assert reply.status == 200
            assert reply.headers["X-Sample-Rate"] == "8000"
            media_type = {"ulaw": "audio/basic", "alaw": "audio/x-alaw"}.get(sound_format, "audio/wav")
            assert reply.headers["Content-Type"] == media_type
            expected = soxr.resample(tone(10), RATE, 8_000)
            got = decoded(sound_format, body)
            assert len(got) - len(expected) in (0, 1)
            assert noise_db(expected, got[: len(expected)]) < -30

    run(test)


def code_of(law: str, sample: int) -> int:
    """Code of a 16-bit sample: sign, segment and step, from the decision values of ITU-T G.711, tables 1a and 2a."""
    if law == "ulaw":
        biased = min(abs(sample) >> 2, 8158) + 33
        segment = biased.bit_length() - 6
        return 0xFF ^ ((0x80 if sample < 0 else 0) | segment << 4 | (biased >> segment + 1) & 0xF)
    magnitude = min(abs(sample) >> 4, 2047)
    segment = max(0, magnitude.bit_length() - 4)
    return 0x55 ^ ((0 if sample < 0 else 0x80) | segment << 4 | (magnitude >> max(0, segment - 1)) & 0xF)


@pytest.mark.parametrize("law", LAWS)
def test_every_sample_has_the_code_of_the_standard(law: str) -> None:
    every = np.arange(-32768, 32768)
    codes = np.frombuffer(encode(law, (every / 32768).astype(np.float32), []), np.uint8)
    expected = [code_of(law, int(sample)) for sample in every]
    smallest = 4 if law == "ulaw" else 16  # where the sign of what is rounded to zero may be either
    audible = np.abs(every) >= smallest
    assert np.array_equal(codes[audible], np.array(expected)[audible])
    assert codes[32768] == SILENCE[law]
    error = np.abs(decoded(law, codes.tobytes()) * 32768 - every)
    assert np.all(error <= np.maximum(8, np.abs(every) / 31 + 4))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.lists(st.integers(0, 3_001), max_size=8).map(sorted),
    st.integers(1, 3_001),
    st.sampled_from([8_000, 16_000, 44_100]),
)
def test_bytes_do_not_depend_on_how_sound_is_cut(sound_format: str, cuts: list[int], length: int, rate: int) -> None:
    samples = np.sin(np.arange(length) / 7).astype(np.float32)
    whole = encode(sound_format, samples, [], rate)
    assert whole == encode(sound_format, samples, cuts, rate)
    if rate == 8_000:
        assert len(whole) == (length if sound_format in LAWS else WAV_HEADER + length + length % 2)


@pytest.mark.parametrize("sound_format", ["wav_ulaw", "wav_alaw"])
@pytest.mark.parametrize("length", [1, 2, 999, 1_000])
def test_a_wav_file_tells_its_lengths_and_code(sound_format: str, length: int) -> None:
    into = Pipeline(Delivery(sound_format, 8_000), 8_000)
    first = into.encode(np.zeros(length, np.float32))
    streamed = first + into.flush()
    body = into.sealed(first) + streamed[len(first) :]
    even = length + length % 2
    code, channels, rate, per_second, width, bits, more = struct.unpack_from("<HHIIHHH", body, 20)
    assert (code, channels, rate, per_second) == (7 if sound_format == "wav_ulaw" else 6, 1, 8_000, 8_000)
    assert (width, bits, more) == (1, 8, 0)
    assert struct.unpack_from("<4sII", body, 38) == (b"fact", 4, even)
    assert struct.unpack_from("<4sI", body, 50) == (b"data", even)
    assert struct.unpack_from("<I", body, 4) == (len(body) - 8,)
    assert body[WAV_HEADER:] == bytes([SILENCE[sound_format.removeprefix("wav_")]]) * even
    assert [struct.unpack_from("<I", streamed, at)[0] for at in (4, 46, 54)] == [0xFFFFFFFF] * 3


@pytest.mark.parametrize(("sound_format", "name"), [(form, name) for form, names in NAMES.items() for name in names])
def test_each_of_its_names_is_known_at_both_apis(tmp_path: Path, sound_format: str, name: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            _, expected = await post(client, text="hello", format=sound_format, seed=1)
            _, fish = await post(client, text="hello", format=name, seed=1)
            _, openai = await post(client, "/v1/audio/speech", input="hello", response_format=name, seed=1)
            assert fish == openai == expected

    run(test)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"format": "ulaw", "sample_rate": 16_000}, "sample_rate"),
        ({"format": "wav_alaw", "sample_rate": 44_100}, "sample_rate"),
        ({"format": "audio/pcmu;rate=16000"}, "format"),
        ({"format": "pcm_mulaw_16000"}, "format"),
        ({"format": "ulaw;"}, "format"),
    ],
)
def test_what_it_does_not_have_is_refused_by_name(tmp_path: Path, fields: dict[str, Any], param: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            reply, body = await post(client, text="hello", **fields)
            assert (reply.status, msgspec.json.decode(body)["error"]["param"]) == (400, param)

    run(test)


@pytest.mark.parametrize("law", LAWS)
def test_a_pause_in_a_live_stream_adds_nothing(law: str) -> None:
    into = Pipeline(Delivery(law, 8_000), 16_000)
    data = into.encode(np.zeros(16_000, np.float32)) + into.pause()
    assert len(data) == 8_000 == into.samples
    assert len(data + into.encode(np.zeros(HOP, np.float32)) + into.flush()) == into.samples
