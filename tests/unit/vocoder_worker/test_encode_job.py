"""Encoding in spans."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.messages import DecodeItem
from vocoder_worker.encode_job import TorchEncodeJob
from vocoder_worker.torch_executor import ExecutorSettings, TorchExecutor

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="module")
def executor():
    return TorchExecutor(DATA / "checkpoint_tiny", ExecutorSettings("cpu", slots=2))


def clip(samples, seed=0):
    return np.clip(0.3 * np.random.default_rng(seed).standard_normal(samples), -1, 1).astype(np.float32)


def codes_in_spans(executor, sound, span):
    job = TorchEncodeJob(executor.encoder, sound, executor.hop, span, executor.device)
    while not job.advance():
        pass
    return job.codes


@settings(max_examples=10, deadline=None)
@given(samples=st.integers(1, 50_000), span=st.integers(1, 30), seed=st.integers(0, 1000))
def test_codes_are_those_of_the_whole_clip_for_any_span(executor, samples, span, seed):
    sound = clip(samples, seed)
    whole = codes_in_spans(executor, sound, span=10_000)
    assert whole.shape == (10, -(-samples // executor.hop))
    assert whole.dtype == np.int16
    np.testing.assert_array_equal(codes_in_spans(executor, sound, span), whole)


def test_jobs_and_decode_calls_may_alternate(executor):
    sounds = [clip(60_000, seed) for seed in (1, 2)]
    expected = [codes_in_spans(executor, sound, 10_000) for sound in sounds]
    jobs = [executor.start_encode(sound) for sound in sounds]
    codes = np.random.default_rng(3).integers(0, 64, (8, 10)).astype(np.int16)
    whole = executor.decode([DecodeItem("r", "g", 0, 0, 8, True)], codes).sounds[0]
    parts = []
    for frame in range(8):
        parts += executor.decode([DecodeItem("r", "g", 0, frame, 1, frame == 0)], codes[frame : frame + 1]).sounds
        for job in jobs:
            job.advance()
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-5)
    for job, whole_codes in zip(jobs, expected, strict=True):
        np.testing.assert_array_equal(job.codes, whole_codes)


def test_a_job_says_when_it_is_done_and_stays_done(executor):
    job = executor.start_encode(clip(1))
    assert job.codes.shape == (10, 0)
    assert job.advance()
    assert job.advance()
    assert job.codes.shape == (10, 1)


@pytest.mark.parametrize("shape", [(0,), (2, 100)])
def test_what_is_no_clip_is_refused(executor, shape):
    with pytest.raises(ValueError, match="clip"):
        executor.start_encode(np.zeros(shape, np.float32))
