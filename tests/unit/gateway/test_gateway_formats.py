"""Formats: what is decoded is what was said, all of it, however it was cut; and it flows."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import soundfile
import soxr
from gateway_fakes import HOP, MINI, RATE, Player, post, run, serving, speak, tone
from gateway_sound import CONTENT_TYPE, DELAY, decode, heard, noise_db
from hypothesis import given, settings
from hypothesis import strategies as st

from common.messages import Array, FrameSpan
from gateway import audio
from gateway.audio import Delivery, Pipeline

FORMATS = ["wav", "mp3", "opus", "aac", "flac"]
ALL = [*FORMATS, "pcm"]
LOSSY = ["mp3", "opus", "aac"]


def pipeline(sound_format: str = "pcm", model_rate: int = RATE, asked: int | None = None, **more: Any) -> Pipeline:
    rate = audio.rate_of(sound_format, asked, model_rate, model_rate)
    return Pipeline(Delivery(sound_format, rate, **more), model_rate)


def voice(seconds: float, rate: int) -> Array:
    """Something like a vowel: harmonics of a pitch that moves, louder and softer."""
    time = np.arange(int(seconds * rate)) / rate
    phase = 2 * np.pi * (140 * time + 3 * np.sin(2 * np.pi * 1.3 * time))
    harmonics = sum(np.sin(k * phase) / k for k in range(1, 12))
    return (0.15 * (1.2 + np.sin(2 * np.pi * 2 * time)) * harmonics).astype(np.float32)


def encode(samples: Array, into: Pipeline, cuts: list[int]) -> bytes:
    return b"".join(into.encode(part) for part in np.split(samples, cuts)) + into.flush()


@pytest.mark.parametrize("sound_format", FORMATS)
@pytest.mark.parametrize("streaming", [True, False])
def test_every_format_has_the_whole_sound_streamed_and_in_one_piece(
    tmp_path: Path, sound_format: str, streaming: bool
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(1, 2, 7)
            reply, body = await post(client, text="hello", format=sound_format, streaming=streaming)
            assert reply.headers["Content-Type"] == CONTENT_TYPE[sound_format]
            rate = int(reply.headers["X-Sample-Rate"])
            assert rate == decode(body).rate == (48_000 if sound_format == "opus" else RATE)
            expected = soxr.resample(tone(10), RATE, rate)
            got = heard(sound_format, body, len(expected))
            assert noise_db(expected, got) < (-15 if sound_format in LOSSY else -80)
            last = rate // 20
            assert noise_db(expected[-last:], got[-last:]) < (-10 if sound_format in LOSSY else -60)

    run(test)


@pytest.mark.parametrize("sound_format", ["opus", "mp3", "aac", "flac"])
@pytest.mark.parametrize("model_rate", [16_000, 44_100])
def test_bytes_flow_with_the_sound(sound_format: str, model_rate: int) -> None:
    """As much as went in can be decoded, but for 100 ms at most; AAC, whose frames last 64 ms at 16 kHz, keeps two."""
    allowed = 0.13 if sound_format == "aac" else 0.1
    coder, step = pipeline(sound_format, model_rate), model_rate // 50
    samples, data = voice(2, model_rate), b""
    for end in range(step, len(samples), step):
        data += coder.encode(samples[end - step : end])
        if end % (5 * step) == 0 and end > 0.3 * model_rate:
            got = decode(data)
            assert end / model_rate - len(got.samples) / got.rate <= allowed


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(ALL),
    st.lists(st.integers(0, 30_000), max_size=8).map(sorted),
    st.sampled_from([8_000, 16_000, 24_000, RATE]),
    st.sampled_from([1.0, 1.3]),
)
def test_bytes_do_not_depend_on_how_sound_is_cut(sound_format: str, cuts: list[int], rate: int, speed: float) -> None:
    samples, asked = voice(0.68, RATE), rate if sound_format != "opus" else None
    one, other = (pipeline(sound_format, asked=asked, speed=speed) for _ in range(2))
    whole, pieces = encode(samples, one, []), encode(samples, other, cuts)
    if sound_format == "opus":  # the serial number of an Ogg stream is random, and with it the checksums
        assert np.array_equal(decode(whole).samples, decode(pieces).samples)
    else:
        assert whole == pieces


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 40_000), max_size=12).map(sorted),
    st.sampled_from([(44_100, 24_000), (44_100, 8_000), (16_000, 44_100), (16_000, 24_000), (44_100, 48_000)]),
)
def test_a_resampled_stream_is_the_one_shot_resampling(cuts: list[int], rates: tuple[int, int]) -> None:
    source, target = rates
    samples = voice(1, source)
    got = np.frombuffer(encode(samples, pipeline("pcm", source, target), cuts), "<i2") / 32768
    assert noise_db(soxr.resample(samples, source, target, quality="HQ"), got) < -60


@pytest.mark.parametrize("speed", [0.25, 0.3, 0.5, 0.77, 1.1, 1.5, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("model_rate", [16_000, 44_100])
def test_speed_changes_the_length_exactly_and_keeps_the_pitch(speed: float, model_rate: int) -> None:
    for length in (1, 100, model_rate // 20, int(1.37 * model_rate)):
        time = np.arange(length) / model_rate
        samples = (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)
        coder = pipeline("pcm", model_rate, speed=speed)
        got = np.frombuffer(encode(samples, coder, list(range(0, length, model_rate // 21))), "<i2")
        assert len(got) == coder.samples == round(length / speed)
    spectrum = np.abs(np.fft.rfft(got * np.hanning(len(got))))
    assert np.argmax(spectrum) * model_rate / len(got) == pytest.approx(440, abs=6)
    middle = got[len(got) // 4 : -len(got) // 4] / 32768
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.1)


def test_the_end_of_slow_speech_is_spoken() -> None:
    samples = np.concatenate([np.zeros(RATE, np.float32), voice(0.2, RATE)])
    got = np.frombuffer(encode(samples, pipeline(speed=0.5), []), "<i2") / 32768
    last, expected = got[-RATE // 5 :], samples[-RATE // 10 :]
    assert np.sqrt(np.mean(last**2)) > 0.5 * np.sqrt(np.mean(expected**2))


def test_volume_is_a_gain_that_clips_and_never_wraps() -> None:
    samples = np.array([0.1, -0.1, 0.9, -0.9], np.float32)
    louder = np.frombuffer(encode(samples, pipeline(volume=20 * np.log10(2)), []), "<i2")
    assert louder.tolist() == [6554, -6554, 32767, -32768]
    softer = np.frombuffer(encode(samples, pipeline(volume=-20), []), "<i2")
    assert softer.tolist() == [328, -328, 2949, -2949]


@pytest.mark.parametrize("sound_format", ALL)
def test_what_is_not_a_number_becomes_silence_and_is_counted(sound_format: str) -> None:
    samples = voice(0.3, RATE)
    expected = samples.copy()
    samples[5000:5003], expected[5000:5003] = [np.nan, np.inf, -np.inf], 0
    broken, whole = pipeline(sound_format), pipeline(sound_format)
    assert len(encode(samples, broken, [4000])) == len(encode(expected, whole, [4000]))
    assert (broken.not_finite, whole.not_finite) == (3, 0)


@pytest.mark.parametrize("sound_format", ALL)
@pytest.mark.parametrize("speed", [1.0, 1.5])
def test_a_pause_pushes_out_all_that_was_said_and_the_stream_goes_on(sound_format: str, speed: float) -> None:
    rate = 48_000 if sound_format == "opus" else 24_000
    coder = pipeline(sound_format, 16_000, 24_000 if sound_format != "opus" else None, speed=speed)
    first = coder.encode(voice(0.5, 16_000)) + coder.pause()
    said = round(round(8_000 / speed) * rate / 16_000)
    with_silence = coder.samples
    assert said <= with_silence <= said + 0.25 * rate
    data = first + coder.encode(voice(0.5, 16_000)) + coder.flush()
    if sound_format == "pcm":
        assert (len(first), len(data)) == (2 * said, 4 * said)
        return
    assert len(decode(first).samples) - DELAY.get(sound_format, 0) >= said
    heard(sound_format, data, with_silence + said)
    assert data.count(b"RIFF") == (sound_format == "wav")
    assert data.count(b"OpusHead") == (sound_format == "opus")


def test_mp3_and_aac_replies_can_be_joined() -> None:
    for sound_format in ("mp3", "aac"):
        data = encode(voice(0.5, RATE), pipeline(sound_format), [])
        assert len(decode(data + data).samples) == 2 * len(decode(data).samples)


def test_a_flac_file_in_one_piece_tells_its_length(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            _, body = await post(client, text="hello", format="flac", streaming=False)
            samples, rate = soundfile.read(io.BytesIO(body), dtype="int16")
            assert rate == RATE
            assert np.array_equal(samples, audio.to_int16(tone(3)))

    run(test)


RATES = [
    *[("pcm", rate) for rate in (8_000, 16_000, 24_000, 32_000, 44_100, 48_000, 12_345)],
    *[("wav", rate) for rate in (8_000, 16_000, 24_000, 32_000, 44_100)],
    *[("mp3", rate) for rate in (8_000, 16_000, 24_000, 32_000, 44_100)],
    *[("aac", 24_000), ("flac", 32_000), ("opus", 24_000)],
]


def test_the_rate_is_the_one_asked_for_and_is_told_truly(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for sound_format, rate in RATES:
                reply, body = await post(client, text="hello", format=sound_format, sample_rate=rate)
                told = int(reply.headers["X-Sample-Rate"])
                assert told == (48_000 if sound_format == "opus" else rate)
                expected = round(3 * HOP * told / RATE)
                if sound_format == "pcm":
                    assert reply.headers["Content-Type"] == f"audio/pcm;rate={rate};channels=1"
                    assert abs(len(body) / 2 - expected) <= 1
                else:
                    assert decode(body).rate == told
                    heard(sound_format, body, expected)

    run(test)


def test_a_rate_that_the_format_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for sound_format, rate in (("mp3", 22_051), ("aac", 12_345), ("opus", 44_100), ("wav", 96_000), ("pcm", 0)):
                reply, body = await post(client, text="hello", format=sound_format, sample_rate=rate)
                assert (reply.status, msgspec.json.decode(body)["error"]["param"]) == (400, "sample_rate")

    run(test)


@pytest.mark.parametrize(
    ("sound_format", "model_rate", "expected"),
    [("mp3", 20_000, 22_050), ("mp3", 96_000, 48_000), ("aac", 30_000, 32_000), ("wav", 20_000, 20_000)],
)
def test_a_container_has_the_model_s_rate_or_the_next_it_knows(
    sound_format: str, model_rate: int, expected: int
) -> None:
    assert audio.rate_of(sound_format, None, model_rate, 24_000) == expected
    samples = voice(0.5, model_rate)
    data = encode(samples, pipeline(sound_format, model_rate), [1000])
    assert decode(data).rate == expected
    heard(sound_format, data, round(len(samples) * expected / model_rate))


def test_volume_and_speed_of_a_request_are_heard(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(2, 8)
            _, plain = await post(client, text="hello", format="pcm")
            neutral = {"speed": 1.0, "volume": 0, "normalize_loudness": True}
            assert (await post(client, text="hello", format="pcm", prosody=neutral))[1] == plain
            _, fast = await post(client, text="hello", format="pcm", prosody={"speed": 2, "volume": -6})
            assert len(fast) == len(plain) / 2
            loudness = [np.std(np.frombuffer(data, "<i2")) for data in (fast, plain)]
            assert 20 * np.log10(loudness[0] / loudness[1]) == pytest.approx(-6, abs=0.5)
            for sound_format in ("wav", "flac"):
                _, body = await post(
                    client, text="hello", format=sound_format, streaming=False, prosody={"speed": 2, "volume": -6}
                )
                assert len(decode(body).samples) == 5 * HOP
                if sound_format == "wav":
                    assert struct.unpack_from("<I", body, 40) == (len(body) - 44,)
                    assert body[44:] == fast

    run(test)


def test_bit_rates_are_kept(tmp_path: Path) -> None:
    assert [audio.opus_bits(value) for value in (32, 24_000, -1000, 0, 1, 512_000)] == [
        *(32_000, 24_000, audio.opus_bits(-1000)),
        *(audio.opus_bits(-1000), 6_000, 256_000),
    ]
    samples = voice(4, RATE)
    small, large = (len(encode(samples, pipeline("opus", opus_bitrate=bits), [])) for bits in (16_000, 64_000))
    assert 2 < large / small < 6
    sizes = [len(encode(samples, pipeline("mp3", mp3_bitrate=rate), [])) for rate in (64, 128, 192)]
    assert [round(size * 8 / 4 / 1000 / 64) for size in sizes] == [1, 2, 3]


def test_without_the_extra_the_rest_works_and_the_refusal_names_the_field(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("gateway.audio.delivery.CODECS", False)
    refused = [{"format": "opus"}, {"format": "aac"}, {"format": "flac"}, {"prosody": {"speed": 1.5}}]

    async def test() -> None:
        async with serving(tmp_path) as client:
            for fields in refused:
                reply, body = await post(client, text="hello", **fields)
                error = msgspec.json.decode(body)["error"]
                assert (reply.status, error["param"]) == (400, "format" if "format" in fields else "prosody.speed")
                assert "codecs" in error["message"]
            for sound_format in ("wav", "pcm", "mp3"):
                reply, _ = await post(client, text="hello", format=sound_format, prosody={"volume": 3})
                assert reply.status == 200

    run(test)


def test_samples_that_were_no_numbers_are_counted(tmp_path: Path) -> None:
    async def broken(player: Player) -> None:
        sound_of_frame = tone(1)
        sound_of_frame[7] = np.nan
        player.stream.add(FrameSpan(player.stream.request, 0, 1), sound_of_frame)
        player.frames = 1
        player.end()

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = broken
            for streaming in (True, False):
                _, body = await post(client, text="hello", format="pcm", streaming=streaming)
                assert np.frombuffer(body, "<i2")[7] == 0
            assert client.registry.get_sample_value("shoal_audio_not_finite_total") == 2

    run(test)


def test_no_write_splits_a_sample(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = speak(*[1, 3] * 12, 40)
            fields = {"text": "hello", "format": "pcm", "sample_rate": 22_050}
            async with client.post("/v1/tts", json=fields) as reply:
                sizes = [len(data) async for data, _ in reply.content.iter_chunks()]
            assert sum(sizes) == 2 * 88 * HOP / 2
            assert len(sizes) > 3
            assert all(size % 2 == 0 for size in sizes)

    run(test)


def test_nothing_else_needs_the_extra() -> None:
    program = """
import sys
from importlib.machinery import PathFinder

class WithoutAv(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == "av" else super().find_spec(name, path, target)

sys.meta_path = [WithoutAv if finder is PathFinder else finder for finder in sys.meta_path]
import numpy as np
import gateway.app
from gateway import audio
from gateway.audio import Delivery, Pipeline
for name in ("wav", "pcm", "mp3"):
    pipeline = Pipeline(Delivery(name, 24_000, volume=3.0), 16_000)
    assert len(pipeline.encode(np.zeros(16_000, np.float32)) + pipeline.flush()) > 1000
assert "av" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=MINI.parents[1])
