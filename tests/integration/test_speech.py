"""The main job: text in, streamed sound out, through four processes."""

from __future__ import annotations

import io
import time
import wave

import numpy as np
import pytest

from tests.integration.client import codes, gather, post, speak
from tests.integration.group import Group, costs, running

MINI_HOP = 800
TINY_HOP = 2048


def test_a_sentence_becomes_a_wav_of_whole_frames(mini: Group) -> None:
    (reply,) = gather(speak(mini.base, "Good morning, how are you today?", format="wav", streaming=False, seed=3))
    assert reply.status == 200
    with wave.open(io.BytesIO(reply.body)) as sound:
        assert sound.getnframes() == int(reply.headers["X-Frames"]) * MINI_HOP
        assert sound.getframerate() == int(reply.headers["X-Sample-Rate"]) == 16000
        assert 1.0 < sound.getnframes() / 16000 < 6.0
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768
    assert reply.headers["X-Finish-Reason"] == "stop"
    assert np.sqrt(np.mean(samples**2)) > 0.01


def test_sound_arrives_before_the_end_is_generated() -> None:
    with running(*costs(step_ms=20.0)) as group:
        (reply,) = gather(speak(group.base, "A stream.", max_new_tokens=100))
        assert reply.took > 1.5, "100 steps of 20 ms"
        assert reply.first_after < 0.5 * reply.took


@pytest.mark.slow
@pytest.mark.parametrize("frames", [1, 2, 3, 7, 40, 200])
def test_the_stream_is_the_recording_whatever_else_runs(tiny: Group, frames: int) -> None:
    text, others = "unicode quick the quick.", [3, 17, 60, 9]
    fields = {"seed": 2, "temperature": 0.8, "max_new_tokens": frames}
    (whole,) = gather(speak(tiny.base, text, streaming=False, **fields))
    mates = [speak(tiny.base, f"Mate {n}.", seed=n, max_new_tokens=n) for n in others]
    streamed, *_ = gather(speak(tiny.base, text, streaming=True, **fields), *mates)
    assert whole.headers["X-Frames"] == str(frames)
    assert len(streamed.samples) == len(whole.samples) == frames * TINY_HOP
    assert np.abs(streamed.samples.astype(int) - whole.samples).max() <= 1


@pytest.mark.slow
def test_alone_or_in_a_crowd_the_same_codes_and_more_than_twice_as_fast(mini: Group) -> None:
    texts = [f"Client number {n} says something of {'quite ' * (n % 5)}its own." for n in range(16)]
    began = time.monotonic()
    alone = [gather(codes(mini.base, text, seed=n))[0] for n, text in enumerate(texts)]
    one_by_one = time.monotonic() - began
    began = time.monotonic()
    crowd = gather(*(codes(mini.base, text, seed=n) for n, text in enumerate(texts)))
    together = time.monotonic() - began
    for one, other in zip(alone, crowd, strict=True):
        assert one.finish == other.finish
        assert np.array_equal(one.codes, other.codes)
    assert one_by_one > 2 * together


def test_seeds_repeat_differ_and_are_told(mini: Group) -> None:
    text = "Say it again."
    same = gather(*(codes(mini.base, text, seed=7) for _ in range(2)))
    assert np.array_equal(same[0].codes, same[1].codes)
    other, first, second = gather(codes(mini.base, text, seed=8), speak(mini.base, text), speak(mini.base, text))
    assert not np.array_equal(same[0].codes, other.codes)
    assert first.headers["X-Seed"] != second.headers["X-Seed"]
    (again,) = gather(speak(mini.base, text, seed=int(first.headers["X-Seed"])))
    assert len(again.samples) == len(first.samples)
    assert np.abs(again.samples.astype(int) - first.samples).max() <= 1


def test_speaker_turns_are_turns_of_one_conversation(mini: Group) -> None:
    text = "Before the tags. <|speaker:0|>How are you?<|speaker:1|>I am fine."
    fields = {"seed": 5, "chunk_length": 100}
    whole, split = gather(codes(mini.base, text, **fields), speak(mini.base, text, streaming=False, **fields))
    assert whole.finish["finish_reason"] == "stop"
    assert int(split.headers["X-Frames"]) == whole.finish["frames"]


def test_max_new_tokens_is_the_length_and_is_said(fast: Group) -> None:
    (reply,) = gather(speak(fast.base, "Forty frames.", max_new_tokens=40, streaming=False))
    assert (reply.headers["X-Finish-Reason"], reply.headers["X-Frames"]) == ("length", "40")
    assert len(reply.samples) == 40 * MINI_HOP


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"text": " "}, "text"),
        ({"text": "x" * 20001}, "text"),
        ({"text": 5}, "text"),
        ({}, "text"),
        ({"text": "a<|im_end|>b"}, "text"),
        ({"text": "a", "format": "ogg"}, "format"),
        ({"text": "a", "temperature": 2.5}, "temperature"),
        ({"text": "a", "top_p": 0}, "top_p"),
        ({"text": "a", "top_k": 257}, "top_k"),
        ({"text": "a", "seed": 1.5}, "seed"),
        ({"text": "a", "streaming": "yes"}, "streaming"),
        ({"text": "a", "max_new_tokens": -1}, "max_new_tokens"),
        ({"text": "a", "reference_id": "nobody"}, "reference_id"),
        ({"text": "a", "reference_id": "../../etc/passwd"}, "reference_id"),
    ],
)
def test_bad_input_is_named_at_every_door(fast: Group, fields: dict, named: str) -> None:
    for path in ("/v1/tts", "/v1/codes"):
        (reply,) = gather(post(fast.base, path, fields))
        if path == "/v1/codes" and named in ("format", "streaming"):
            continue
        assert 400 <= reply.status < 500
        assert reply.error["param"] == named
