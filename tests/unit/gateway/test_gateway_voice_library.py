"""The library on disk: whole or not there, bounded, of the codec that encoded it, and repaired after a crash."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from gateway_fakes import HOP, TINY, TINY_MODEL, post, run, serving
from safetensors.numpy import save_file
from test_gateway_reference_audio import encoded, tone

from common.checkpoint import CheckpointError
from gateway.checkpoint import served_model
from gateway.errors import RequestError
from gateway.http.errors import as_api_error
from gateway.voices import codes as codes_file
from gateway.voices import library as module
from gateway.voices.catalogue import Catalogue
from gateway.voices.codes import CodesError
from gateway.voices.library import Details, Library, Upload

CODES = (np.arange(30).reshape(10, 3)).astype(np.int16)
UPLOAD = Upload(b"source", "grüß dich\n", CODES)
ANNA = Details("Anna", "a voice", "public", ("de", "calm"), "me")


def library(
    path: Path, served: served_model.ServedModel = TINY_MODEL, most: int = 10, most_bytes: int = 10**6
) -> Library:
    return Library(path, served, most, most_bytes)


def folders(path: Path) -> int:
    return len(list((path / module.FOLDERS).iterdir()))


def test_what_was_written_is_what_is_read_by_the_next_process(tmp_path: Path) -> None:
    library(tmp_path).add("anna", ANNA, [UPLOAD, Upload(b"other", "more", CODES[:, :2])])
    again = library(tmp_path)
    voice = again.find("anna", "id")
    assert (voice.title, voice.description, voice.visibility, voice.tags, voice.owner) == (
        *("Anna", "a voice", "public"),
        *(["de", "calm"], "me"),
    )
    assert [recording.text for recording in voice.recordings] == ["grüß dich\n", "more"]
    assert again.read_audio(voice) == [b"source", b"other"]
    first, second = again.read_codes(voice)
    np.testing.assert_array_equal(first, CODES)
    np.testing.assert_array_equal(second, CODES[:, :2])
    assert first.dtype == np.int16
    assert again.totals() == (1, voice.size)
    files = list((tmp_path / module.FOLDERS / voice.folder).iterdir())
    assert voice.size == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errno.ENOSPC, 507, "insufficient_storage"),
        (errno.EDQUOT, 507, "insufficient_storage"),
        (errno.EROFS, 503, "storage_unavailable"),
        (errno.EACCES, 503, "storage_unavailable"),
        (errno.EIO, 503, "storage_unavailable"),
    ],
)
def test_a_disk_that_takes_no_more_is_named_and_nothing_of_the_voice_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, status: int, code: str
) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError(error, os.strerror(error), str(path))

    voices = library(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_atomically", fail)
        with pytest.raises(RequestError, match=re.escape(str(tmp_path))) as caught:
            voices.add("anna", ANNA, [UPLOAD])
    assert (as_api_error(caught.value).status, caught.value.code) == (status, code)
    assert int(as_api_error(caught.value).headers["Retry-After"]) > 0
    assert (folders(tmp_path), voices.ids()) == (0, [])
    voices.add("anna", ANNA, [UPLOAD])


@pytest.mark.parametrize(
    ("pragma", "status"),
    [("PRAGMA query_only = ON", 503), ("PRAGMA max_page_count = 1", 507)],
    ids=["read-only", "full"],
)
def test_a_catalogue_that_can_t_be_written_is_named(tmp_path: Path, pragma: str, status: int) -> None:
    voices = library(tmp_path)
    voices.add("anna", ANNA, [UPLOAD])
    voices._catalogue._database.execute(pragma)
    long = Details("x" * 100_000)
    for change in (
        lambda: voices.add("ben", long, [UPLOAD]),
        lambda: voices.edit("anna", long),
        *([lambda: voices.delete("anna", "id")] if status == 503 else []),
    ):
        with pytest.raises(RequestError) as caught:
            change()
        assert as_api_error(caught.value).status == status
    assert folders(tmp_path) == 1
    assert voices.find("anna", "id").title == "Anna"


def test_codes_that_can_t_be_saved_are_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    voices = library(tmp_path)
    voice = voices.add("anna", ANNA, [UPLOAD])
    monkeypatch.setattr(module, "write_atomically", fail)
    voices.write_codes(voice, [CODES])


def test_codes_that_are_handed_out_cannot_be_changed(tmp_path: Path) -> None:
    voices = library(tmp_path)
    voices.add("anna", ANNA, [UPLOAD])
    with pytest.raises(ValueError, match="read-only"):
        voices.read_codes(voices.find("anna", "id"))[0][0, 0] = 1


WRITES = ["write_atomically", "_sync", "digest"]


@pytest.mark.parametrize("crash_at", range(1, 7))
def test_a_crash_while_adding_leaves_no_voice(tmp_path: Path, crash_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies at any write, or before the row is: afterwards there is no half voice, nor its remains."""
    voices = library(tmp_path)
    steps = 0

    def step(function):
        def wrapped(*arguments):
            nonlocal steps
            steps += 1
            if steps == crash_at:
                raise SystemExit
            return function(*arguments)

        return wrapped

    for name in WRITES:
        monkeypatch.setattr(module, name, step(getattr(module, name)))
    monkeypatch.setattr(Catalogue, "insert", step(Catalogue.insert))
    monkeypatch.setattr(module.shutil, "rmtree", lambda *_, **__: None)  # a dead process tidies nothing
    with pytest.raises(SystemExit):
        voices.add("anna", ANNA, [UPLOAD])
    monkeypatch.undo()
    assert voices.ids() == []
    assert folders(tmp_path) == 1
    assert library(tmp_path).ids() == []
    assert folders(tmp_path) == 0


def test_a_crash_while_deleting_leaves_no_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    voices = library(tmp_path)
    voices.add("anna", ANNA, [UPLOAD])
    monkeypatch.setattr(module.shutil, "rmtree", lambda *_, **__: None)
    voices.delete("anna", "id")
    monkeypatch.undo()
    assert folders(tmp_path) == 1
    assert library(tmp_path).ids() == []
    assert folders(tmp_path) == 0


def test_a_voice_whose_files_are_gone_is_no_longer_listed(tmp_path: Path) -> None:
    voice = library(tmp_path).add("anna", ANNA, [UPLOAD])
    shutil.rmtree(tmp_path / module.FOLDERS / voice.folder)
    assert library(tmp_path).ids() == []


def test_a_failed_write_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    voices = library(tmp_path)

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(RequestError, match="no space"):
        voices.add("anna", ANNA, [UPLOAD])
    assert (voices.ids(), folders(tmp_path)) == ([], 0)


def test_count_and_bytes_are_bounded(tmp_path: Path) -> None:
    voices = library(tmp_path, most=2, most_bytes=10_000)
    size = voices.add("a", ANNA, [UPLOAD]).size
    with pytest.raises(RequestError) as caught:
        voices.add("b", ANNA, [Upload(bytes(10_000 - size), "text", CODES)])
    assert (caught.value.kind, caught.value.code) == ("conflict", "voice_library_full")
    voices.add("b", ANNA, [UPLOAD])
    with pytest.raises(RequestError) as caught:
        voices.check_new("c")
    assert (caught.value.kind, caught.value.code) == ("conflict", "too_many_voices")
    voices.delete("b", "id")
    assert voices.totals() == (1, size)
    voices.check_new("c")


def test_a_catalogue_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / module.CATALOGUE).write_bytes(b"rubbish" * 1000)
    with pytest.raises(OSError, match=r"catalogue\.sqlite"):
        library(tmp_path)
    os.unlink(tmp_path / module.CATALOGUE)
    library(tmp_path).close()
    with sqlite3.connect(tmp_path / module.CATALOGUE) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(OSError, match="version 99"):
        library(tmp_path)


def test_codes_of_another_codec_or_damaged_ones_are_not_given_out(tmp_path: Path) -> None:
    library(tmp_path, TINY_MODEL._replace(codec_fingerprint="other")).add("anna", ANNA, [UPLOAD])
    voices = library(tmp_path)
    voice = voices.find("anna", "id")
    with pytest.raises(CodesError, match="another codec"):
        voices.read_codes(voice)
    (tmp_path / module.FOLDERS / voice.folder / module.CODES).write_bytes(b"rubbish")
    with pytest.raises(CodesError):
        voices.read_codes(voice)


def test_a_voice_of_another_codec_is_encoded_anew_from_its_recording_once(tmp_path: Path) -> None:
    clip = encoded(tone(1.5))
    data = tmp_path / "data" / "voices"
    other = library(data, TINY_MODEL._replace(codec_fingerprint="other"))
    voice = other.add("anna", ANNA, [Upload(clip, "said", CODES)])
    other.close()

    async def test() -> None:
        async with serving(tmp_path) as client:
            for _ in range(2):
                reply, _ = await post(client, text="hello", reference_id="anna")
                assert reply.status == 200
            assert len(client.engine.encoded) == 1
            begin = client.gateway.model.prompts._semantic_begin_id
            frames = -(-len(client.engine.encoded[0]) // HOP)
            assert [(prompt[0] >= begin).sum() for _, prompt in client.engine.submitted] == [frames] * 2
            path = data / module.FOLDERS / voice.folder / module.CODES
            assert codes_file.read(path, TINY_MODEL.codec_fingerprint, 1)[0].shape == (10, frames)

        path.write_bytes(b"rubbish")
        async with serving(tmp_path) as client:
            reply, _ = await post(client, text="hello", reference_id="anna")
            assert (reply.status, len(client.engine.encoded)) == (200, 1)

    run(test)


def checkpoint_with_voices(
    path: Path, default: str | None = "eva", codes: np.ndarray = CODES, text: str = "hi"
) -> Path:
    directory = path / "checkpoint"
    shutil.copytree(TINY, directory)
    (directory / "voices").mkdir()
    save_file({"codes": np.ascontiguousarray(codes)}, directory / "voices" / "eva.safetensors")
    (directory / "voices" / "eva.txt").write_text(text)
    (directory / "voices" / "voices.json").write_text(json.dumps({"default": default}))
    return directory


def test_a_checkpoint_brings_voices_and_a_default(tmp_path: Path) -> None:
    served = served_model.load(checkpoint_with_voices(tmp_path))

    async def test() -> None:
        async with serving(tmp_path, served) as client:
            async with client.get("/v1/references/list?format=json") as reply:
                assert (await reply.json())["reference_ids"] == ["eva"]
            for fields in ({}, {"reference_id": "eva"}):
                await post(client, text="hello", **fields)
            (_, first), (_, second) = client.engine.submitted
            np.testing.assert_array_equal(first, second)
            assert (first[0] >= served.prompts._semantic_begin_id).sum() == CODES.shape[1]
            async with client.delete("/v1/references/delete", json={"reference_id": "eva"}) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (403, "voice_read_only")

    run(test)


def test_a_voice_of_the_library_hides_one_of_the_checkpoint(tmp_path: Path) -> None:
    library(tmp_path / "l").add("eva", ANNA, [UPLOAD])
    voices = library(tmp_path / "l", served_model.load(checkpoint_with_voices(tmp_path)))
    assert voices.ids() == ["eva"]
    assert voices.find("eva", "id").recordings[0].text == UPLOAD.text
    with pytest.raises(RequestError, match="already"):
        voices.check_new("Eva")


def test_without_a_default_of_the_checkpoint_there_is_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await post(client, text="hello")
            _, prompt = client.engine.submitted[0]
            assert not (prompt[0] >= client.gateway.model.prompts._semantic_begin_id).any()

    run(test)


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        ({"default": "nobody"}, "voices.json: default 'nobody'"),
        ({"codes": CODES.astype(np.int32)}, "eva.safetensors: codes int32"),
        ({"codes": CODES[:9]}, "eva.safetensors: codes"),
        ({"codes": CODES[:, :0]}, "eva.safetensors: codes"),
        ({"codes": -CODES}, "beyond their codebooks"),
        ({"codes": CODES + 10_000}, "beyond their codebooks"),
        ({"text": " "}, "eva.txt: blank"),
        ({"text": "a<|im_end|>"}, "eva.txt"),
    ],
)
def test_broken_voices_of_a_checkpoint_are_named(tmp_path: Path, problem: dict, match: str) -> None:
    with pytest.raises(CheckpointError, match=match):
        served_model.load(checkpoint_with_voices(tmp_path, **problem))
