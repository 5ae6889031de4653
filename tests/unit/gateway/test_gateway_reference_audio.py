"""Reference audio: any depth and format gives the same samples, and what can't be used is refused by name."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from gateway_fakes import HOP, RATE, post, run, serving

from gateway.audio.reference_audio import AudioError, decode

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
    with pytest.raises(AudioError) as caught:
        decode(BAD[name], RATE, LIMITS)
    error = caught.value.named("references[3].audio")
    assert (error.kind, error.param) == ("invalid", "references[3].audio")


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
    samples = decode(encoded(tone(1.5), RATE, kind, subtype), RATE, LIMITS)
    assert samples.dtype == np.float32
    assert samples.shape == (int(1.5 * RATE),)
    np.testing.assert_allclose(samples, tone(1.5)[:, 0], atol=tolerance)


@pytest.mark.parametrize("kind", ["OGG", "MP3"])
def test_lossy_formats_are_read(kind: str) -> None:
    samples = decode(encoded(tone(1.5), RATE, kind), RATE, LIMITS)
    assert len(samples) / RATE == pytest.approx(1.5, abs=0.06)


@pytest.mark.parametrize("rate", [8000, 16000, 48000, 96000])
@pytest.mark.parametrize("channels", [1, 2])
def test_other_rates_and_channels_become_mono_at_the_codec_s(rate: int, channels: int) -> None:
    samples = decode(encoded(tone(2, rate, channels), rate), RATE, LIMITS)
    assert len(samples) == pytest.approx(2 * RATE, abs=2)
    inner = slice(RATE // 10, -RATE // 10)
    np.testing.assert_allclose(samples[inner], tone(2)[: len(samples)][inner, 0], atol=1e-3)


def test_loud_samples_are_clipped() -> None:
    samples = decode(encoded(tone(2, amplitude=3), subtype="FLOAT"), RATE, LIMITS)
    assert np.abs(samples).max() == 1


def coded(container: str, codec: str, seconds: float = 1.5) -> bytes:
    av = pytest.importorskip("av", reason="PyAV is not installed")
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream(codec, rate=48_000, layout="mono")
        wave = np.ascontiguousarray(tone(seconds, 48_000).T.astype(np.float32))
        frame = av.AudioFrame.from_ndarray(wave, format="fltp", layout="mono")
        frame.sample_rate = 48_000
        resampler = av.AudioResampler(
            format=stream.format, layout="mono", rate=48_000, frame_size=stream.frame_size or 960
        )
        for part in [*resampler.resample(frame), *resampler.resample(None), None]:
            out.mux(stream.encode(part))
    return file.getvalue()


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        *(("mp4", "aac"), ("mov", "aac"), ("ipod", "aac"), ("ipod", "alac"), ("adts", "aac")),
        *(("webm", "libopus"), ("matroska", "libopus"), ("ogg", "libopus"), ("mp3", "libmp3lame")),
    ],
)
def test_what_phones_and_browsers_record_is_read(container: str, codec: str) -> None:
    samples = decode(coded(container, codec), RATE, LIMITS)
    assert len(samples) / RATE == pytest.approx(1.5, abs=0.1)
    spectrum = np.abs(np.fft.rfft(samples))
    assert np.argmax(spectrum) * RATE / len(samples) == pytest.approx(300, abs=2)


@pytest.mark.parametrize("container", ["mp4", "adts", "webm"])
def test_damaged_containers_are_refused(container: str) -> None:
    whole = coded(container, "libopus" if container == "webm" else "aac")
    for cut in (12, 100, len(whole) // 8):
        with pytest.raises(AudioError):
            decode(whole[:cut], RATE, LIMITS)


@pytest.mark.parametrize(
    "playlist",
    [
        b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile '/etc/passwd'\n",
        b"<?xml version='1.0'?><MPD><BaseURL>http://127.0.0.1/</BaseURL></MPD>",
        b"v=0\nm=audio 5004 RTP/AVP 0\nc=IN IP4 127.0.0.1\n",
    ],
)
def test_files_that_name_other_files_or_addresses_are_no_audio(playlist: bytes) -> None:
    with pytest.raises(AudioError):
        decode(playlist, RATE, LIMITS)


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


def test_a_bad_clip_is_refused_by_its_place_in_the_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            clips = [encoded(tone(1.2)), b"x" * 1000]
            references = [{"audio": base64.b64encode(clip).decode(), "text": "said"} for clip in clips]
            reply, body = await post(client, text="hello", references=references)
            assert reply.status == 400
            assert b'"param":"references[1].audio"' in body
            assert client.engine.submitted == []

    run(test)


# Recordings as phones, recorders and browsers write them --------------------------------------------------------------


def id3(size: int) -> bytes:
    return b"ID3\x04\x00\x00" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0)) + bytes(size)


JUNK = {
    "nothing": b"",
    "zeros": bytes(512),
    "an ID3 tag": id3(3000),
    "two ID3 tags": id3(10) + id3(300),
    "an ID3 tag and zeros": id3(100) + bytes(1000),
    "noise": np.random.default_rng(1).integers(0, 255, 700, np.uint8).tobytes(),  # no byte of it is 255
}


STREAMS = [("mp3", "libmp3lame"), ("adts", "aac")]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(("container", "codec"), STREAMS)
def test_junk_before_the_first_frame_is_passed_over(junk: str, container: str, codec: str) -> None:
    samples = decode(JUNK[junk] + coded(container, codec), RATE, LIMITS)
    assert len(samples) / RATE == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "AIFF", "OGG"])
def test_an_id3_tag_before_any_format_is_passed_over(kind: str) -> None:
    assert len(decode(id3(3000) + encoded(tone(2), kind=kind), RATE, LIMITS)) == 2 * RATE


@pytest.mark.parametrize(("container", "codec"), STREAMS)
@pytest.mark.parametrize("cut", [1, 137, 200, 1001])
def test_a_stream_cut_at_its_front_is_read_from_its_next_frame(container: str, codec: str, cut: int) -> None:
    assert len(decode(coded(container, codec)[cut:], RATE, LIMITS)) > 1.3 * RATE


@pytest.mark.parametrize("riff", [0, None, 0xFFFFFFFF])
@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_of_unknown_length_goes_to_the_end_of_the_file(riff: int | None, size: int) -> None:
    data = bytearray(encoded(tone(2)))
    if riff is not None:
        data[4:8] = riff.to_bytes(4, "little")
    data[40:44] = size.to_bytes(4, "little")
    assert len(decode(bytes(data), RATE, LIMITS)) == 2 * RATE


def test_the_data_chunk_of_a_wav_is_found_behind_others() -> None:
    data = encoded(tone(2))
    more = data[:36] + b"LIST" + (3).to_bytes(4, "little") + b"abc\0" + b"data" + bytes(4) + data[44:]
    assert len(decode(more, RATE, LIMITS)) == 2 * RATE


@pytest.mark.parametrize("channels", [1, 2, 6, 8])
def test_channels_are_mixed(channels: int) -> None:
    assert np.allclose(decode(encoded(tone(2, channels=channels)), RATE, LIMITS), tone(2)[:, 0], atol=1e-3)


@pytest.mark.parametrize("data", [b"%PDF-1.7" + bytes(5000), b"#EXTM3U\nhttp://x/y.mp3\n", b"\x00" * 5000])
def test_what_is_no_audio_is_refused_with_what_is_accepted(data: bytes) -> None:
    with pytest.raises(AudioError, match=r"accepted are WAV, FLAC, MP3"):
        decode(data, RATE, LIMITS)
