"""``shoal say`` and ``shoal voices`` against a fake server."""

from __future__ import annotations

import stat
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from cli_fakes import RATE, serving, shoal, whole_wav

from deploy.cli import players
from gateway.audio import Delivery, Pipeline


def test_a_streamed_wav_file_gets_its_true_length(tmp_path: Path) -> None:
    file = tmp_path / "hello.wav"
    with serving() as server:
        result = shoal(server, "say", "Hello.", "-o", str(file), "--voice", "anna", "--seed", "7", "--speed", "1.5")
        assert result.exit_code == 0, result.output
        choices = {"reference_id": "anna", "seed": 7, "prosody": {"speed": 1.5}}
        assert server.asked == [{"text": "Hello.", "format": "wav"} | choices]
    with wave.open(str(file)) as reader:
        assert (reader.getframerate(), reader.getnframes()) == (RATE, RATE)
        assert len(reader.readframes(RATE + 1)) == 2 * RATE
    assert "seed 7" in result.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_a_streamed_wav_file_for_telephones_gets_its_true_lengths(tmp_path: Path) -> None:
    into = Pipeline(Delivery("wav_ulaw", 8_000), 8_000)
    file = tmp_path / "hello.wav"
    with serving() as server:
        server.speech = [into.encode(np.zeros(500, np.float32)), into.encode(np.zeros(501, np.float32)), into.flush()]
        result = shoal(server, "say", "Hello.", "-o", str(file), "--format", "wav_ulaw")
        assert result.exit_code == 0, result.output
    body = file.read_bytes()
    riff, fact, data = (struct.unpack_from("<I", body, at)[0] for at in (4, 46, 54))
    assert (riff, fact, data) == (len(body) - 8, 1_002, 1_002)


@pytest.mark.parametrize(
    ("name", "asked"), [("a.mp3", "mp3"), ("a.FLAC", "flac"), ("a", "wav"), ("a.ulaw", "ulaw"), ("a.alaw", "alaw")]
)
def test_the_name_tells_the_format(tmp_path: Path, name: str, asked: str) -> None:
    with serving() as server:
        server.speech = [b"bytes as ", b"they come"]
        assert shoal(server, "say", "Hello.", "-o", str(tmp_path / name)).exit_code == 0
        assert server.asked[0]["format"] == asked
    assert (tmp_path / name).read_bytes() == b"bytes as they come"


def test_a_name_that_tells_no_format_is_refused(tmp_path: Path) -> None:
    result = shoal(None, "say", "Hello.", "-o", str(tmp_path / "a.xyz"))
    assert result.exit_code == 2
    assert "--format" in result.stderr


def test_sound_goes_to_standard_output_and_the_report_does_not() -> None:
    with serving() as server:
        server.speech = [b"\x00\x01\x02", b"\x03"]
        result = shoal(server, "say", "-", "-o", "-", "--format", "pcm", input="From a pipe.")
        assert server.asked[0]["text"] == "From a pipe."
    assert result.stdout_bytes == b"\x00\x01\x02\x03"
    assert "first sound after" in result.stderr


def test_a_stream_that_breaks_off_leaves_no_file_and_is_an_error(tmp_path: Path) -> None:
    with serving() as server:
        server.breaks_off = True
        result = shoal(server, "say", "Hello.", "-o", str(tmp_path / "hello.wav"))
    assert result.exit_code == 1
    assert "broke off" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "body", [{"message": "blank"}, {"error": {"message": "blank"}}, {"detail": "blank"}, {"error": "blank"}]
)
def test_an_error_is_told_in_the_server_s_words(tmp_path: Path, body: dict[str, object]) -> None:
    with serving() as server:
        server.status, server.error = 400, body
        result = shoal(server, "say", " ", "-o", str(tmp_path / "a.wav"))
    assert (result.exit_code, result.stderr) == (1, "Error: 400: blank\n")


def test_a_server_that_is_not_there_is_named() -> None:
    result = shoal(None, "say", "Hello.", "-o", "-", "--server", "127.0.0.1:9")
    assert result.exit_code == 1
    assert "http://127.0.0.1:9" in result.stderr
    assert "shoal serve" in result.stderr


def test_the_key_is_sent(tmp_path: Path) -> None:
    with serving() as server:
        shoal(server, "say", "Hello.", "-o", str(tmp_path / "a.wav"), "--api-key", "secret")
        assert server.keys == ["Bearer secret"]


def test_without_a_player_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = shoal(None, "say", "Hello.")
    assert result.exit_code == 2
    assert "aplay" in result.stderr
    assert "-o" in result.stderr


def _install_player(directory: Path, script: str) -> None:
    player = directory / "aplay"
    player.write_text(f"#!/bin/sh\n{script}\n")
    player.chmod(player.stat().st_mode | stat.S_IXUSR)


def test_the_player_gets_the_samples_at_the_stream_s_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install_player(tmp_path, f"echo $@ > {tmp_path}/arguments; /bin/cat > {tmp_path}/heard")
    monkeypatch.setenv("PATH", str(tmp_path))
    with serving() as server:
        server.speech = [bytes(1000), b"\x01" * 1000]
        result = shoal(server, "say", "Hello.")
        assert result.exit_code == 0, result.output
        assert server.asked == [{"text": "Hello.", "format": "pcm"}]
    assert (tmp_path / "heard").read_bytes() == bytes(1000) + b"\x01" * 1000
    assert f"-r {RATE}" in (tmp_path / "arguments").read_text()


def test_a_player_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install_player(tmp_path, "exit 3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with serving() as server:
        server.speech = [bytes(1000), 0.3, *[bytes(1 << 20)] * 4]
        result = shoal(server, "say", "Hello.")
    assert result.exit_code == 1
    assert "exit status 3" in result.stderr


@pytest.mark.parametrize("name", players.PLAYERS)
def test_every_player_is_told_the_rate(name: str) -> None:
    command = players.command(name, 12_345)
    assert command[0] == name
    assert any("12345" in word for word in command)


def test_voices_are_listed_added_renamed_and_deleted(tmp_path: Path) -> None:
    recording = tmp_path / "anna.wav"
    recording.write_bytes(whole_wav(1.5))
    with serving() as server:
        assert shoal(server, "voices", "list").stdout == "anna\nbert\n"
        assert shoal(server, "voices", "add", "anna", str(recording), "--text", "Hi.").stdout == "add done\n"
        assert shoal(server, "voices", "rename", "anna", "eve").stdout == "update done\n"
        assert shoal(server, "voices", "delete", "eve", "--yes").stdout == "delete done\n"
        assert shoal(server, "voices", "delete", "eve", input="n\n").exit_code == 1
        assert server.asked == [
            {"what": "list", "method": "GET"},
            {"what": "add", "method": "POST", "id": "anna", "text": "Hi.", "audio": recording.read_bytes()},
            {"what": "update", "method": "POST", "old_reference_id": "anna", "new_reference_id": "eve"},
            {"what": "delete", "method": "DELETE", "reference_id": "eve"},
        ]


def test_a_voice_needs_the_words_of_its_recording(tmp_path: Path) -> None:
    recording = tmp_path / "anna.wav"
    recording.write_bytes(whole_wav(1.5))
    result = shoal(None, "voices", "add", "anna", str(recording))
    assert result.exit_code == 2
    assert "--text" in result.stderr


@pytest.mark.parametrize("command", ["say", "voices", "top", "bench", "keys", "haproxy"])
def test_help_teaches_by_examples(command: str) -> None:
    result = shoal(None, command, "--help")
    assert result.exit_code == 0
    assert f"shoal {command}" in result.stdout.split("Examples:")[1]


@pytest.mark.parametrize(
    ("command", "word"), [("serve", "--run-dir"), ("worker", "vocoder_worker"), ("simulate", "--find-rate")]
)
def test_help_of_what_is_passed_on_is_that_of_the_target(command: str, word: str) -> None:
    result = shoal(None, command, "--help")
    assert result.exit_code == 0
    assert word in result.stdout
