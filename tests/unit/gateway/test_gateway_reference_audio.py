"""Reference audio: any depth and format gives the same samples, and what can't be used is refused by name."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from gateway_fakes import HOP, RATE, post, run, serving

from gateway.errors import ApiError
from gateway.reference_audio import decode

LIMITS = (1.0, 60.0)


def tone(seconds: float, rate: int = RATE, channels: int = 1, amplitude: float = 0.5) -> np.ndarray:
    wave = amplitude * np.sin(2 * np.pi * 300 * np.arange(int(seconds * rate)) / rate)
    return np.repeat(wave[:, None], channels, axis=1)


def encoded(samples: np.ndarray, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def with_one_bad_sample(value: float) -> bytes:
    samples = tone(2)
    samples[1000] = value
    return encoded(samples, subtype="FLOAT")


BAD = {
    "no bytes": b"",
    "header only": encoded(tone(1))[:44],
    "0.2 s": encoded(tone(0.2)),
    "61 s": encoded(tone(61, 8000), 8000),
    "silence": encoded(np.zeros(2 * RATE)),
    "nearly silence": encoded(tone(2, amplitude=2**-12)),
    "not a number": with_one_bad_sample(np.nan),
    "infinite": with_one_bad_sample(np.inf),
    "a text file": b"this is no sound at all\n" * 1000,
    "cut header": encoded(tone(1))[:20],
    "an absurd rate": encoded(tone(2), 1_000_000),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_refused_by_name(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(BAD[name], RATE, LIMITS, "references[3].audio")
    assert (caught.value.status, caught.value.param) == (400, "references[3].audio")


@pytest.mark.parametrize(
    ("kind", "subtype", "tolerance"),
    [
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 1e-6),
        ("WAV", "DOUBLE", 1e-6),
        ("FLAC", "PCM_16", 1e-4),
        ("AIFF", "PCM_16", 1e-4),
    ],
)
def test_depths_and_formats_decode_equal(kind: str, subtype: str, tolerance: float) -> None:
    samples = decode(encoded(tone(1.5), RATE, kind, subtype), RATE, LIMITS, "audio")
    assert samples.dtype == np.float32
    assert samples.shape == (int(1.5 * RATE),)
    np.testing.assert_allclose(samples, tone(1.5)[:, 0], atol=tolerance)


@pytest.mark.parametrize("kind", ["OGG", "MP3"])
def test_lossy_formats_are_read(kind: str) -> None:
    samples = decode(encoded(tone(1.5), RATE, kind), RATE, LIMITS, "audio")
    assert len(samples) / RATE == pytest.approx(1.5, abs=0.06)


@pytest.mark.parametrize("rate", [8000, 16000, 48000, 96000])
@pytest.mark.parametrize("channels", [1, 2])
def test_other_rates_and_channels_become_mono_at_the_codec_s(rate: int, channels: int) -> None:
    samples = decode(encoded(tone(2, rate, channels), rate), RATE, LIMITS, "audio")
    assert len(samples) == pytest.approx(2 * RATE, abs=2)
    inner = slice(RATE // 10, -RATE // 10)
    np.testing.assert_allclose(samples[inner], tone(2)[: len(samples)][inner, 0], atol=1e-3)


def test_loud_samples_are_clipped() -> None:
    samples = decode(encoded(tone(2, amplitude=3), subtype="FLOAT"), RATE, LIMITS, "audio")
    assert np.abs(samples).max() == 1


def test_references_of_a_request_are_encoded_and_stand_in_the_prompt(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            clips = [encoded(tone(1.2)), encoded(tone(1.5))]
            references = [{"audio": base64.b64encode(clip).decode(), "text": "said"} for clip in clips]
            reply, _ = await post(client, text="hello", references=references)
            assert reply.status == 200
            assert [len(samples) for samples in client.engine.encoded] == [int(1.2 * RATE), int(1.5 * RATE)]
            _, prompt = client.engine.submitted[0]
            frames = sum(-(-len(samples) // HOP) for samples in client.engine.encoded)
            assert (prompt[0] >= client.gateway.model.prompts._semantic_begin_id).sum() == frames

    run(test)


def test_a_bad_clip_is_refused_before_anything_is_encoded(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            clips = [encoded(tone(1.2)), b"x" * 1000]
            references = [{"audio": base64.b64encode(clip).decode(), "text": "said"} for clip in clips]
            reply, body = await post(client, text="hello", references=references)
            assert reply.status == 400
            assert b'"param":"references[1].audio"' in body
            assert client.engine.encoded == []

    run(test)
