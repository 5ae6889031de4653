"""The library of voices: whole or not there, never another voice, and never outside its directory."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from gateway_fakes import HOP, RATE, Client, post, run, serving
from test_gateway_reference_audio import encoded, tone

from common.messages import Failure
from gateway.voices import service
from gateway.voices.catalogue import Voice
from gateway.voices.library import Library
from gateway.voices.viewer import Viewer

CLIP = encoded(tone(1.5))
TRAVERSAL = ["../x", "..", ".", "a/b", "/etc/passwd", "a\\b", "", "a\x00b", "é", "a" * 256, ".hidden", "a\n", "%2e%2e"]


async def add(client: Client, voice: str = "anna", text: str = "said", audio: bytes = CLIP) -> tuple[int, Any]:
    form = aiohttp.FormData()
    form.add_field("id", voice)
    form.add_field("text", text)
    form.add_field("audio", audio, filename="upload", content_type="application/octet-stream")
    async with client.post("/v1/references/add?format=json", data=form) as reply:
        return reply.status, await reply.json()


def odd_charset() -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("id", io.BytesIO(b"x"), filename="", content_type="text/plain; charset=nothing")
    return form


async def listed(client: Client) -> list[str]:
    async with client.get("/v1/references/list", headers={"Accept": "application/json"}) as reply:
        body = await reply.json()
        assert (reply.status, body["success"]) == (200, True)
        return body["reference_ids"]


async def call(client: Client, method: str, path: str, **fields: str) -> tuple[int, dict[str, Any]]:
    async with client.http.request(method, f"{path}?format=json", json=fields) as reply:
        return reply.status, await reply.json()


def test_a_voice_is_added_listed_spoken_with_renamed_and_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            assert await listed(client) == []
            assert (await add(client, "zoe"))[0] == 200
            status, body = await add(client, "an-na_ 1", "what is said")
            assert (status, body["success"], body["reference_id"]) == (200, True, "an-na_ 1")
            assert await listed(client) == ["an-na_ 1", "zoe"]

            reply, _ = await post(client, text="hello", reference_id="an-na_ 1")
            assert reply.status == 200
            frames = -(-int(1.5 * RATE) // HOP)
            begin = client.gateway.model.prompts._semantic_begin_id
            assert (client.engine.submitted[0][1][0] >= begin).sum() == frames

            rename = ("POST", "/v1/references/update")
            assert (await call(client, *rename, old_reference_id="zoe", new_reference_id="an-na_ 1"))[0] == 409
            assert (await call(client, *rename, old_reference_id="nobody", new_reference_id="x"))[0] == 404
            assert (await call(client, *rename, old_reference_id="zoe", new_reference_id="zoe"))[0] == 400
            status, body = await call(client, *rename, old_reference_id="zoe", new_reference_id="zora")
            assert (status, body["new_reference_id"]) == (200, "zora")

            remove = ("DELETE", "/v1/references/delete")
            assert (await call(client, *remove, reference_id="zoe"))[0] == 404
            assert (await call(client, *remove, reference_id="zora"))[0] == 200
            assert await listed(client) == ["an-na_ 1"]
            assert len(list((tmp_path / "data" / "voices" / "files").iterdir())) == 1

    run(test)


def test_ids_that_differ_only_in_case_collide(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "Anna")
            status, body = await add(client, "anna")
            assert (status, body["error"]["code"]) == (409, "voice_exists")
            reply, content = await post(client, text="hello", reference_id="anna")
            assert reply.status == 400
            assert "there is 'Anna'" in json.loads(content)["message"]
            await add(client, "bert")
            rename = {"old_reference_id": "bert", "new_reference_id": "ANNA"}
            assert (await call(client, "POST", "/v1/references/update", **rename))[0] == 409
            rename = {"old_reference_id": "Anna", "new_reference_id": "anna"}
            assert (await call(client, "POST", "/v1/references/update", **rename))[0] == 200
            assert await listed(client) == ["anna", "bert"]

    run(test)


def test_a_voice_of_the_same_name_is_the_new_one_and_after_its_end_none(tmp_path: Path) -> None:
    """Deleted and uploaded again: nothing of the former voice is left anywhere."""

    async def frames_of(client: Client) -> int:
        reply, _ = await post(client, text="hello", reference_id="anna")
        assert reply.status == 200
        return int((client.engine.submitted[-1][1][0] >= client.gateway.model.prompts._semantic_begin_id).sum())

    async def test() -> None:
        async with serving(tmp_path) as client:
            for seconds in (1.2, 2.0):
                await add(client, "anna", audio=encoded(tone(seconds)))
                assert await frames_of(client) == -(-int(seconds * RATE) // HOP)
                assert client.gateway.metrics.clip_bytes._value.get() > 0
                await call(client, "DELETE", "/v1/references/delete", reference_id="anna")
                assert client.gateway.metrics.clip_bytes._value.get() == 0
            reply, _ = await post(client, text="hello", reference_id="anna")
            assert reply.status == 400

    run(test)


def test_a_voice_is_read_once_until_the_library_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    find = Library.find
    monkeypatch.setattr(service, "IN_MEMORY", 1)

    def counted(self: Library, voice: str, param: str, viewer: Viewer) -> Voice:
        read.append(voice)
        return find(self, voice, param, viewer)

    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "anna")
            monkeypatch.setattr(Library, "find", counted)
            for _ in range(3):
                assert (await post(client, text="hello", reference_id="anna"))[0].status == 200
            assert read == ["anna"]
            await add(client, "ben")
            read.clear()
            assert (await post(client, text="hello", reference_id="anna"))[0].status == 200
            assert read == ["anna"]
            for voice in ("ben", "anna", "ben"):
                assert (await post(client, text="hello", reference_id=voice))[0].status == 200
            assert read == ["anna", "ben", "anna", "ben"]

    run(test)


def test_an_unknown_voice_is_refused_with_a_hint_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "anna")
            for path in ("/v1/tts", "/v1/codes"):
                reply, body = await post(client, path, text="hello", reference_id="ann")
                error = msgspec.json.decode(body)["error"]
                assert (reply.status, error["param"], error["code"]) == (400, "reference_id", "voice_not_found")
                assert "anna" in error["message"]
            assert await listed(client) == ["anna"]
            assert client.engine.submitted == []

    run(test)


def test_replies_are_json_unless_msgpack_is_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for query, accept, json_wanted in (
                ("", "*/*", True),
                ("", "application/msgpack", False),
                ("?format=msgpack", "*/*", False),
                ("?format=json", "*/*", True),
                ("?format=application/json", "application/msgpack", True),
                ("", "application/json", True),
                ("", "application/json, application/msgpack", False),
            ):
                async with client.get(f"/v1/references/list{query}", headers={"Accept": accept}) as reply:
                    kind = "json" if json_wanted else "msgpack"
                    assert reply.headers["Content-Type"].startswith(f"application/{kind}")
                    decode = json.loads if json_wanted else msgspec.msgpack.decode
                    assert decode(await reply.read())["reference_ids"] == []

    run(test)


def test_ids_cannot_leave_the_library(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            (tmp_path / "data" / "x").mkdir()
            await add(client, "anna")
            for bad in TRAVERSAL:
                status, body = await add(client, bad)
                assert (status, body["error"]["param"]) == (400, "id"), bad
                status, body = await call(client, "DELETE", "/v1/references/delete", reference_id=bad)
                assert (status, body["error"]["param"]) == (400, "reference_id"), bad
                fields = {"old_reference_id": "anna", "new_reference_id": bad}
                status, body = await call(client, "POST", "/v1/references/update", **fields)
                assert (status, body["error"]["param"]) == (400, "new_reference_id"), bad
            assert await listed(client) == ["anna"]
            assert (tmp_path / "data" / "x").exists()

    run(test)


def test_bad_uploads_are_refused_by_name_and_leave_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_voices=1) as client:
            for param, fields in (
                ("text", {"text": "  "}),
                ("text", {"text": "a<|im_end|>"}),
                ("audio", {"audio": b""}),
                ("audio", {"audio": b"no sound" * 100}),
            ):
                status, body = await add(client, **fields)
                assert (status, body["error"]["param"]) == (400, param)
            client.engine.failure = Failure(503, "not_ready", "no vocoder", retry_after=2)
            assert (await add(client))[0] == 503
            client.engine.failure = None
            assert await listed(client) == []
            assert (await add(client))[0] == 200
            assert (await add(client))[1]["error"]["code"] == "voice_exists"
            encodes = len(client.engine.encoded)
            assert (await add(client, "bert", audio=encoded(tone(3))))[1]["error"]["code"] == "too_many_voices"
            assert len(client.engine.encoded) == encodes
            async with client.post("/v1/references/add", json={"id": "x"}) as reply:
                assert reply.status == 415
            for form in ({"id": "x", "text": "y"}, {"id": "x", "text": "y", "audio": "no file"}):
                parts = aiohttp.FormData(form, default_to_multipart=True)
                async with client.post("/v1/references/add", data=parts) as reply:
                    assert (reply.status, (await reply.json())["error"]["param"]) == (400, "audio")
            async with client.post("/v1/references/add", data=odd_charset()) as reply:
                assert reply.status == 400
            headers = {"Content-Type": "multipart/form-data"}
            async with client.post("/v1/references/add", data=b"--x", headers=headers) as reply:
                assert (reply.status, (await reply.json())["error"]["code"]) == (400, "invalid_multipart")

    run(test)
