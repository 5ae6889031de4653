"""The ``shoal`` command before a real process group."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import soundfile

from tests.integration.group import ROOT, Group


def shoal(group: Group, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.cli", *arguments, "--server", group.base]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)


def test_what_is_said_with_a_voice_that_was_added_fills_a_wav_file(fast: Group, tmp_path: Path) -> None:
    recording = tmp_path / "recording.wav"
    soundfile.write(recording, np.sin(np.arange(2 * 16_000) / 20), 16_000)
    shoal(fast, "voices", "add", "tester", str(recording), "--text", "A tone.")
    try:
        assert "tester" in shoal(fast, "voices", "list").stdout.splitlines()
        shoal(fast, "voices", "rename", "tester", "renamed")
        shoal(fast, "say", "Hello.", "--voice", "renamed", "-o", str(tmp_path / "hello.wav"))
    finally:
        shoal(fast, "voices", "delete", "renamed", "--yes")
    with wave.open(str(tmp_path / "hello.wav")) as reader:
        assert reader.getnframes() > 0
        assert len(reader.readframes(reader.getnframes() + 1)) == 2 * reader.getnframes()


def test_a_benchmark_counts_the_sound_that_was_made(fast: Group, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    seconds = fast.metric("shoal_audio_seconds_total")
    options = ["-c", "2", "-n", "6", "--warm-up", "0", "--field", "max_new_tokens=20", "--json", str(file)]
    shoal(fast, "bench", *options)
    (result,) = json.loads(file.read_text())["results"]
    assert (result["whole"], result["refused"], result["failed"]) == (6, 0, 0)
    assert abs(fast.metric("shoal_audio_seconds_total") - seconds - result["audio_seconds"]) < 1e-6


def test_top_shows_a_group_that_is_up(fast: Group) -> None:
    screen = shoal(fast, "top", "--once", "--interval", "0.2").stdout
    for process in ("gateway", "scheduler", "ar_worker", "vocoder_worker"):
        assert f"● {process}" in screen
