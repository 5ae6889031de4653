"""``shoal bench``: what it measures, against streams whose timing is known."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from cli_fakes import RATE, serving, shoal, wav_head
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli.benchmark.listener import Heard, Listener
from deploy.cli.benchmark.prompts import made_up
from deploy.cli.sound import SoundError, SoundStream

SECOND = 2 * RATE  # bytes


def listen(*parts: tuple[float, bytes], kind: str = "pcm") -> Heard:
    heard = Heard(status=200)
    sound = SoundStream(kind, {"X-Sample-Rate": str(RATE)}, 44_100)  # type: ignore[arg-type]
    listener = Listener(heard, sound)
    for now, data in parts:
        listener.receive(data, now)
    listener.end(parts[-1][0])
    return heard


def test_a_header_is_no_sound() -> None:
    heard = listen((0.1, wav_head()), (0.5, bytes(100)), (0.6, bytes(SECOND)), kind="wav")
    assert (heard.first_byte, heard.first_audio, heard.first_playable) == (0.1, 0.5, 0.6)


def test_each_halt_shifts_the_clock_of_what_follows() -> None:
    """1 s of sound at 0; the second piece comes 0.5 s late and lasts until 2.5; the third is in time."""
    heard = listen((0.0, bytes(SECOND)), (1.5, bytes(SECOND)), (2.4, bytes(SECOND)), (3.6, bytes(SECOND)))
    assert heard.underrun == pytest.approx(0.5 + 0.1)
    assert heard.gaps == pytest.approx([1.5, 0.9, 1.2])
    assert heard.real_time_factor == pytest.approx(3.6 / 4)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 3 * SECOND)), min_size=1, max_size=12))
def test_listening_takes_as_long_as_the_sound_and_the_underrun(parts: list[tuple[float, int]]) -> None:
    """The law of the clock: begun at first audio, the sound ends no sooner than the last piece came."""
    now, timed = 0.0, []
    for pause, size in parts:
        now += pause
        timed.append((now, bytes(size)))
    heard = listen(*timed)
    end = heard.first_audio + heard.underrun + heard.audio_seconds
    assert end >= now
    assert heard.underrun <= sum(heard.gaps) + 1e-9
    assert heard.audio_seconds == pytest.approx(sum(size for _, size in parts) / SECOND)


@given(st.binary(max_size=50), st.lists(st.integers(1, 60), max_size=20), st.sampled_from([8000, 24_000, 48_000]))
def test_a_wav_header_is_found_however_it_is_cut(other: bytes, cuts: list[int], rate: int) -> None:
    padded = other + b"\0" * (len(other) % 2)
    stream = wav_head(rate, extra=b"LIST" + len(other).to_bytes(4, "little") + padded) + bytes(1234)
    sound = SoundStream("wav", {}, 44_100)
    at = 0
    for cut in [*cuts, len(stream)]:
        sound.feed(stream[at : at + cut])
        at += cut
    assert (sound.rate, sound.audio_bytes) == (rate, 1234)


@pytest.mark.parametrize("begin", [b"ID3\x04", b"RIFX", b"\xff\xfb\x90", b'{"error"', b"RIFF\0\0\0\0AVI "])
def test_what_is_no_wav_is_refused(begin: bytes) -> None:
    with pytest.raises(SoundError):
        SoundStream("wav", {}, 44_100).feed(begin + bytes(20))


@pytest.mark.parametrize(
    ("headers", "rate"),
    [
        ({"x-sample-rate": "16000", "Content-Type": "audio/pcm;rate=8000"}, 16_000),
        ({"Content-Type": "audio/pcm; rate=8000; channels=1"}, 8000),
        ({"Content-Type": "audio/pcm"}, 24_000),
    ],
)
def test_the_rate_of_pcm_is_what_the_reply_tells(headers: dict[str, str], rate: int) -> None:
    assert SoundStream("pcm", headers, 24_000).rate == rate


@given(st.integers(), st.sampled_from(["short", "medium", "long", "mixed"]))
def test_made_up_texts_never_repeat(seed: int, length: str) -> None:
    texts = list(islice(made_up(length, seed), 200))
    assert len(set(texts)) == 200
    assert texts == list(islice(made_up(length, seed), 200))


def test_a_closed_loop_keeps_so_many_under_way(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    with serving() as server:
        server.speech = [wav_head(), bytes(SECOND), 0.05, bytes(SECOND)]
        result = shoal(server, "bench", "-c", "3,1", "-n", "9", "--json", str(file), "--voice", "anna")
        assert result.exit_code == 0, result.output
        assert server.most_under_way == 3
        assert len(server.asked) == 1 + 9 + 9  # with one to warm up
        assert len({asked["text"] for asked in server.asked}) == 19
        assert server.asked[0].items() >= {"reference_id": "anna", "format": "wav"}.items()
    first, second = json.loads(file.read_text())["results"]
    assert (first["load"], second["load"]) == ("3 at once", "1 at once")
    assert first["whole"] == second["whole"] == 9
    assert first["audio_seconds"] == 18
    assert first["underrun_share"] == 0
    assert 0.04 < second["gap"]["p50"] < 1
    assert first["first_audio"]["p50"] <= first["first_playable"]["p50"] < first["total"]["p50"]
    assert "3 at once" in result.stdout


def test_arrivals_at_random_do_not_wait_for_the_server() -> None:
    with serving() as server:
        server.speech = [wav_head(), 0.5, bytes(SECOND)]
        result = shoal(server, "bench", "--rate", "100", "-n", "10", "--warm-up", "0")
        assert result.exit_code == 0, result.output
        assert server.most_under_way > 5


def test_an_openai_server_is_asked_in_its_own_words(tmp_path: Path) -> None:
    with serving() as server:
        server.headers = {"Content-Type": "audio/pcm"}
        server.speech = [bytes(48_000)]
        file = tmp_path / "out.json"
        options = ["--api", "openai", "--format", "pcm", "-n", "2", "--field", "speed=1.5", "--json", str(file)]
        assert shoal(server, "bench", *options).exit_code == 0
        assert set(server.paths) == {"/v1/audio/speech"}
        asked = server.asked[0]
        assert asked.pop("input")
        assert asked == {"model": "tts-1", "voice": "alloy", "response_format": "pcm", "speed": 1.5}
    assert json.loads(file.read_text())["results"][0]["audio_seconds"] == 2  # at 24 kHz, as OpenAI's clients assume


def test_repeated_texts_are_warned_of(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("One.\n\nTwo.\n")
    with serving() as server:
        result = shoal(server, "bench", "-n", "3", "--texts", str(texts), "--warm-up", "0")
        assert "texts repeat" in result.stderr
        result = shoal(server, "bench", "-n", "2", "--texts", str(texts), "--warm-up", "0")
        assert "texts repeat" not in result.stderr


@pytest.mark.parametrize(
    ("status", "speech", "breaks_off", "expected"),
    [
        (503, [], False, "3 / 0"),
        (400, [], False, "0 / 3"),
        (200, [wav_head()], False, "0 / 3"),
        (200, [b"ID3 and what follows"], False, "0 / 3"),
        (200, [wav_head(), bytes(SECOND)], True, "0 / 3"),
    ],
    ids=["refused", "bad", "silent", "not wav", "broken off"],
)
def test_what_is_not_whole_is_counted_apart(
    status: int, speech: list[bytes | float], breaks_off: bool, expected: str
) -> None:
    with serving() as server:
        server.status, server.speech, server.breaks_off = status, speech, breaks_off
        result = shoal(server, "bench", "-n", "3")
    assert result.exit_code == 1
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("refused / failed")]
    assert row.split("failed", 1)[1].strip() == expected
    assert "3 requests" in result.stderr


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with serving() as server:
        result = shoal(server, "bench", "-c", "1,2", "-n", "4", "--plot", str(tmp_path / "out.png"))
        assert result.exit_code == 0, result.output
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments", [["-c", "0"], ["-c", "x"], ["-r", "1", "-c", "1"], ["--field", "x"]])
def test_options_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    assert shoal(None, "bench", *arguments).exit_code == 2
