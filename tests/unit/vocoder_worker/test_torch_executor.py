"""Laws of streaming decode, at the executor, with the bundled model (window: 16 frames)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.checkpoint import CheckpointError
from common.messages import DecodeItem
from vocoder_worker.executor import Executor
from vocoder_worker.torch_executor import ExecutorSettings, TorchExecutor

ROOT = Path(__file__).resolve().parents[3]
MINI = ROOT / "models" / "mini"
SLOTS = 5

schedules = st.lists(st.dictionaries(st.integers(0, SLOTS - 1), st.integers(1, 20), min_size=1), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def executor():
    return TorchExecutor(MINI, ExecutorSettings("cpu", slots=SLOTS, max_frames_per_call=32))


def random_codes(frames, seed=0):
    return np.random.default_rng(seed).integers(0, 512, (frames, 10)).astype(np.int16)


def item(slot, frames, reset=True):
    return DecodeItem(f"request {slot}", "gateway", slot, 0, frames, reset)


def test_a_frame_of_zeros_is_a_frame(executor):
    codes = random_codes(10)
    codes[4] = 0
    whole = executor.decode([item(0, 10)], codes).sounds[0]
    assert len(whole) == 10 * 800
    head, tail = (
        executor.decode([item(1, 5)], codes[:5]).sounds[0],
        executor.decode([item(1, 5, False)], codes[5:]).sounds[0],
    )
    np.testing.assert_allclose(np.concatenate([head, tail]), whole, atol=1e-5)


def alone(executor, codes):
    """The sound of a whole stream decoded by itself."""
    return executor.decode([item(0, len(codes))], codes).sounds[0]


def assert_same_sound(got, expected):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


@settings(max_examples=8, deadline=None)
@given(schedule=schedules, seed=st.integers(0, 2**31))
def test_joined_chunks_are_the_recording_whatever_the_split_the_mates_and_the_pauses(executor, schedule, seed):
    codes, sounds = {}, {}
    for number, frames_by_slot in enumerate(schedule):
        chunks = {slot: random_codes(n, seed + 100 * number + slot) for slot, n in frames_by_slot.items()}
        items = [item(slot, len(chunk), reset=slot not in codes) for slot, chunk in chunks.items()]
        output = executor.decode(items, np.concatenate(list(chunks.values())))
        for (slot, chunk), sound in zip(chunks.items(), output.sounds, strict=True):
            codes.setdefault(slot, []).append(chunk)
            sounds.setdefault(slot, []).append(sound)
    for slot, parts in sounds.items():
        assert_same_sound(np.concatenate(parts), alone(executor, np.concatenate(codes[slot])))


@pytest.mark.parametrize("frames", [1, 2, 3, 31, 32, 33, 65])
def test_n_frames_are_exactly_n_hops_of_sound(executor, frames):
    sound = alone(executor, random_codes(frames))
    assert sound.shape == (frames * executor.hop,)
    assert sound.dtype == np.float32
    assert np.abs(sound).max() <= 1


def test_mixed_lengths_in_one_call_equal_one_by_one(executor):
    lengths = [1, 25, 50, 7]
    codes = [random_codes(n, seed=n) for n in lengths]
    output = executor.decode([item(slot, n) for slot, n in enumerate(lengths)], np.concatenate(codes))
    for sound, own in zip(output.sounds, codes, strict=True):
        assert_same_sound(sound, alone(executor, own))


@pytest.mark.parametrize(("lengths", "padding"), [([5], 0), ([4, 4], 0), ([4, 3, 2], 1 + 2), ([8, 3], 0)])
def test_padding_is_what_a_batch_computes_beyond_its_frames(executor, lengths, padding):
    """Streams of less than half the longest one's frames are computed apart from it."""
    items = [item(slot, n) for slot, n in enumerate(lengths)]
    assert executor.decode(items, random_codes(sum(lengths))).padding == padding


def test_rows_may_change_places_between_calls(executor):
    codes = [random_codes(8, seed) for seed in (1, 2)]
    first = executor.decode([item(3, 4), item(1, 4)], np.concatenate([codes[0][:4], codes[1][:4]])).sounds
    second = executor.decode(
        [item(1, 4, reset=False), item(3, 4, reset=False)], np.concatenate([codes[1][4:], codes[0][4:]])
    ).sounds
    assert_same_sound(np.concatenate([first[0], second[1]]), alone(executor, codes[0]))
    assert_same_sound(np.concatenate([first[1], second[0]]), alone(executor, codes[1]))


def test_a_reused_slot_sounds_as_a_new_one(executor):
    expected = alone(executor, random_codes(20, seed=1))
    alone(executor, random_codes(30, seed=2))
    np.testing.assert_array_equal(alone(executor, random_codes(20, seed=1)), expected)


def test_codes_outside_their_codebook_harm_nobody(executor):
    good, bad = random_codes(6), np.full((6, 10), 32767, np.int16)
    bad[::2] = -1
    sounds = executor.decode([item(0, 6), item(1, 6)], np.concatenate([bad, good])).sounds
    assert np.isfinite(sounds[0]).all()
    assert_same_sound(sounds[1], alone(executor, good))


def test_an_item_far_longer_than_a_pass_equals_its_chunks(executor):
    codes = random_codes(100)
    whole = alone(executor, codes)
    parts = [alone(executor, codes[:1])]
    parts += [executor.decode([item(0, 33, reset=False)], codes[n : n + 33]).sounds[0] for n in (1, 34, 67)]
    assert_same_sound(whole, np.concatenate(parts))


@pytest.mark.slow
def test_two_thousand_frames_in_one_item(executor):
    codes = random_codes(2100)
    sound = alone(executor, codes)
    assert sound.shape == (2100 * executor.hop,)
    assert_same_sound(sound[: 40 * executor.hop], alone(executor, codes[:40]))


def test_a_call_without_items_has_no_sound(executor):
    assert executor.decode([], np.empty((0, 10), np.int16)).sounds == []


@pytest.mark.parametrize(
    ("items", "frames", "message"),
    [
        ([item(SLOTS, 1)], 1, "slot 5"),
        ([item(-1, 1)], 1, "slot -1"),
        ([item(0, 0)], 0, "0 frames"),
        ([item(1, 1), item(1, 1)], 2, "twice"),
        ([item(0, 2)], 3, "codes are"),
    ],
)
def test_a_bad_plan_is_refused_before_any_state_changes(executor, items, frames, message):
    codes = random_codes(4)
    first = executor.decode([item(0, 2)], codes[:2]).sounds[0]
    with pytest.raises(ValueError, match=message):
        executor.decode(items, random_codes(frames))
    second = executor.decode([item(0, 2, reset=False)], codes[2:]).sounds[0]
    assert_same_sound(np.concatenate([first, second]), alone(executor, codes))


def test_the_bundled_model_turns_a_clip_into_codes_and_back(executor):
    served: Executor = executor
    served.warm_up()
    clip = 0.3 * np.sin(np.arange(16000) * 2 * np.pi * 180 / 16000).astype(np.float32)
    job = served.start_encode(clip)
    while not job.advance():
        pass
    assert job.codes.shape == (10, 20)
    sound = alone(served, job.codes.T)
    assert sound.shape == clip.shape
    assert 0.01 < np.abs(sound).max() <= 1
    assert served.weight_bytes > 20_000_000
    assert served.state_bytes > 0


def test_warm_up_leaves_every_slot_at_its_beginning(executor):
    codes = random_codes(3)
    expected = alone(executor, codes)
    executor.warm_up()
    assert_same_sound(executor.decode([item(0, 3, reset=False)], codes).sounds[0], expected)


def test_a_directory_without_a_codec_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"codec\.pth"):
        TorchExecutor(tmp_path, ExecutorSettings("cpu"))
