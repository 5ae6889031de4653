"""What the evaluation of the bundled model measures, on sounds of which that is known."""

from __future__ import annotations

import numpy as np
import pytest

from models.recipe.measures import clicks, end_silences, loudness, mel_distance, pitch, timbre

RATE = 16000


def voice(hertz: float, highest: int, seconds: float = 1.0) -> np.ndarray:
    """Harmonics of equal strength up to number ``highest``, float32 [n]."""
    times = np.arange(int(seconds * RATE)) / RATE
    harmonics = sum(np.cos(2 * np.pi * hertz * number * times) for number in range(1, highest + 1))
    return (0.5 * harmonics / np.abs(harmonics).max()).astype(np.float32)


@pytest.mark.parametrize("hertz", [80.0, 102.0, 173.0, 250.0])
def test_pitch_is_that_of_the_harmonics(hertz: float) -> None:
    assert pitch(voice(hertz, 20), RATE) == pytest.approx(hertz, rel=0.02)


def test_noise_has_no_pitch() -> None:
    assert pitch(np.random.default_rng(0).normal(size=RATE).astype(np.float32), RATE) == 0.0


def test_timbre_knows_dark_from_bright_at_any_pitch_and_level() -> None:
    dark, bright = timbre(voice(120, 8)), timbre(voice(120, 50))
    other = timbre(0.1 * voice(150, 8))
    assert np.linalg.norm(other - dark) < np.linalg.norm(other - bright) / 2


def test_twice_the_amplitude_is_six_decibels_louder() -> None:
    sound = voice(200, 5)
    assert loudness(2 * sound, RATE) - loudness(sound, RATE) == pytest.approx(6.02, abs=0.05)


def test_silence_is_measured_at_both_ends() -> None:
    sound = np.concatenate([np.zeros(800), voice(200, 5), np.zeros(1600)])
    before, behind = end_silences(sound, RATE)
    assert before == pytest.approx(0.05, abs=0.005)
    assert behind == pytest.approx(0.1, abs=0.005)


def test_a_jump_is_a_click_and_a_voice_is_none() -> None:
    sound = 0.2 * np.sin(2 * np.pi * 150 * np.arange(RATE) / RATE)
    assert clicks(sound) == 0
    sound[RATE // 2 :] += 0.3
    assert clicks(sound) > 0


def test_a_sound_is_at_no_distance_of_itself_and_further_from_a_louder_one() -> None:
    sound = voice(150, 30)
    assert mel_distance(sound, sound) == 0.0
    assert mel_distance(2 * sound, sound) > mel_distance(1.2 * sound, sound) > 0.3
