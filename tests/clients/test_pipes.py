"""``curl`` into the usual command-line players and converters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.clients.conftest import KEY, program
from tests.clients.sound import MODEL_RATE, PCM_BYTES, SECONDS, assert_pcm
from tests.integration.group import Group

pytestmark = pytest.mark.slow

Pipe = Callable[[str, list[str]], bytes]
RAW = ["-f", "s16le", "-ac", "1"]
PADDING = {"mp3": 0.16, "aac": 0.2}  # seconds, of encoder and decoder


@pytest.fixture
def pipe(server: Group) -> Pipe:
    """What a command makes of sound in that format, streamed from curl."""

    def run(format: str, command: list[str]) -> bytes:
        body = json.dumps({"text": "Hello there.", "format": format})
        headers = ["-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {KEY}"]
        curl = [program("curl"), "--silent", "--show-error", "--fail", "--no-buffer", *headers, "--data", body]
        reader = [program(command[0]), *command[1:]]
        with subprocess.Popen([*curl, f"{server.base}/v1/tts"], stdout=subprocess.PIPE) as source:
            done = subprocess.run(reader, stdin=source.stdout, capture_output=True, timeout=60)
        assert source.returncode == 0
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return run


@pytest.mark.parametrize("format", ["mp3", "wav", "opus", "aac", "flac"])
def test_ffmpeg_decodes_it(pipe: Pipe, format: str) -> None:
    rate = 48000 if format == "opus" else MODEL_RATE
    samples = pipe(format, ["ffmpeg", "-v", "error", "-i", "-", *RAW, "-ar", str(rate), "-"])
    seconds = len(samples) / PCM_BYTES / rate
    assert SECONDS <= seconds <= SECONDS + PADDING.get(format, 0.001)


@pytest.mark.parametrize(
    ("format", "reader"),
    [
        ("ulaw", ["ffmpeg", "-v", "error", "-f", "mulaw", "-ar", "8000", "-ac", "1", "-i", "-", *RAW, "-"]),
        ("alaw", ["ffmpeg", "-v", "error", "-f", "alaw", "-ar", "8000", "-ac", "1", "-i", "-", *RAW, "-"]),
        ("wav_ulaw", ["ffmpeg", "-v", "error", "-i", "-", *RAW, "-"]),
        ("wav_alaw", ["ffmpeg", "-v", "error", "-i", "-", *RAW, "-"]),
        ("ulaw", ["sox", "-t", "ul", "-r", "8000", "-c", "1", "-", "-t", "raw", "-e", "signed", "-b", "16", "-"]),
        ("wav_alaw", ["sox", "-t", "wav", "-", "-t", "raw", "-e", "signed", "-b", "16", "-"]),
    ],
)
def test_telephony_is_decoded(pipe: Pipe, format: str, reader: list[str]) -> None:
    assert_pcm(pipe(format, reader), 8_000)


def test_ffmpeg_reads_raw_samples(pipe: Pipe) -> None:
    assert_pcm(pipe("pcm", ["ffmpeg", "-v", "error", *RAW, "-ar", "44100", "-i", "-", *RAW, "-"]), 44100)


def test_sox_takes_the_header_of_a_stream(pipe: Pipe) -> None:
    assert_pcm(pipe("wav", ["sox", "-t", "wav", "-", "-t", "raw", "-"]), MODEL_RATE)


def test_sox_reads_raw_samples(pipe: Pipe) -> None:
    raw = ["-t", "raw", "-r", "44100", "-e", "signed", "-b", "16", "-c", "1"]
    assert_pcm(pipe("pcm", ["sox", *raw, "-", "-t", "raw", "-"]), 44100)


@pytest.mark.parametrize(
    "command",
    [["mpg123", "-q", "-s", "--mono", "-"], ["sox", "-t", "mp3", "-", "-t", "raw", "-"]],
    ids=["mpg123", "sox"],
)
def test_mp3_is_played(pipe: Pipe, command: list[str]) -> None:
    seconds = len(pipe("mp3", command)) / PCM_BYTES / MODEL_RATE
    assert SECONDS <= seconds <= SECONDS + PADDING["mp3"]
