"""Fish's management of voices: the routes its SDKs call, the forms they send, and the fields their types ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from gateway_fakes import HOP, RATE, Client, post, run, serving
from test_gateway_reference_audio import encoded, tone

CLIPS = [encoded(tone(1.2)), encoded(tone(1.5))]

# What the SDKs' types refuse to be without.
FIELDS = {
    *("_id", "type", "title", "description", "cover_image", "train_mode", "state", "tags", "samples", "created_at"),
    *("updated_at", "languages", "visibility", "lock_visibility", "like_count", "mark_count", "shared_count"),
    *("task_count", "author"),
}


async def create(client: Client, title: str = "Anna", **other: Any) -> tuple[int, dict[str, Any]]:
    """As the SDK sends it: every file is called ``upload`` and is an octet stream."""
    fields = {"visibility": "private", "type": "tts", "train_mode": "fast", "enhance_audio_quality": "true"}
    fields |= {"texts": ["one", "two"], "tags": ["de", "calm"], "voices": CLIPS} | other
    form = aiohttp.FormData(default_to_multipart=True)
    if title:
        form.add_field("title", title)
    for name, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, bytes):
                form.add_field(name, value, filename="upload", content_type="application/octet-stream")
            else:
                form.add_field(name, value)
    async with client.post("/model", data=form) as reply:
        return reply.status, await reply.json()


async def call(client: Client, method: str, path: str, **options: Any) -> tuple[int, Any]:
    async with client.http.request(method, path, **options) as reply:
        return reply.status, await reply.json()


def test_a_voice_is_made_shown_spoken_with_changed_and_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            status, voice = await create(client)
            assert status == 201
            assert voice.keys() >= FIELDS
            assert (voice["title"], voice["tags"], voice["state"]) == ("Anna", ["de", "calm"], "trained")
            assert voice["author"].keys() == {"_id", "nickname", "avatar"}
            assert await call(client, "GET", f"/model/{voice['_id']}") == (200, voice)

            reply, _ = await post(client, text="hello", reference_id=voice["_id"])
            assert reply.status == 200
            prompts = client.gateway.model.prompts
            frames = -(-int(1.2 * RATE) // HOP) + -(-int(1.5 * RATE) // HOP)
            assert (client.engine.submitted[0][1][0] >= prompts._semantic_begin_id).sum() == frames

            changes = {"title": "Berta", "visibility": "public"}
            status, changed = await call(client, "PATCH", f"/model/{voice['_id']}", data=changes)
            assert (status, changed["title"], changed["visibility"]) == (200, "Berta", "public")
            assert (changed["tags"], changed["created_at"]) == (voice["tags"], voice["created_at"])
            form = aiohttp.FormData({"tags": "en"}, default_to_multipart=True)
            status, changed = await call(client, "PATCH", f"/model/{voice['_id']}", data=form)
            assert (status, changed["title"], changed["tags"]) == (200, "Berta", ["en"])

            assert (await call(client, "DELETE", f"/model/{voice['_id']}"))[0] == 200
            for method in ("GET", "DELETE"):
                status, body = await call(client, method, f"/model/{voice['_id']}")
                assert (status, body["error"]["code"]) == (404, "voice_not_found")

    run(test)


def test_voices_are_listed_by_page_and_filter(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for number, tags in enumerate((["a"], ["a", "b"], ["b"])):
                await create(client, f"Voice {number}", tags=tags)

            async def titles(query: str) -> tuple[int, set[str]]:
                status, body = await call(client, "GET", f"/model?{query}")
                assert status == 200
                assert all(item.keys() >= FIELDS for item in body["items"])
                return body["total"], {item["title"] for item in body["items"]}

            assert await titles("page_size=10&page_number=1&self=false&sort_by=task_count") == (
                3,
                {"Voice 0", "Voice 1", "Voice 2"},
            )
            pages = [await titles(f"page_size=2&page_number={page}&sort_by=created_at") for page in (1, 2, 3)]
            assert pages == [(3, {"Voice 2", "Voice 1"}), (3, {"Voice 0"}), (3, set())]
            assert await titles("tag=a") == (2, {"Voice 0", "Voice 1"})
            assert await titles("tag=a&tag=b") == (1, {"Voice 1"})
            assert await titles("title=VOICE 2") == (1, {"Voice 2"})
            assert await titles("author_id=nobody") == (0, set())
            assert await titles("author_id=127.0.0.1") == (0, set())  # without keys voices belong to nobody
            assert await titles("self=true") == (3, {"Voice 0", "Voice 1", "Voice 2"})
            for bad in ("page_size=0", "page_size=x", "page_number=0", "sort_by=beauty"):
                status, body = await call(client, "GET", f"/model?{bad}")
                assert (status, body["error"]["param"]) == (400, bad.partition("=")[0])

    run(test)


def test_bad_forms_are_refused_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_references=3) as client:
            for param, fields in (
                ("title", {"title": ""}),
                ("voices", {"voices": []}),
                ("voices", {"voices": ["no file"]}),
                ("texts", {"texts": []}),
                ("texts", {"texts": ["one"]}),
                ("texts[1]", {"texts": ["one", " "]}),
                ("texts[0]", {"texts": ["<|im_end|>", "two"]}),
                ("voices", {"voices": [CLIPS[0], b"no sound"]}),
                ("voices", {"voices": CLIPS * 2, "texts": ["x"] * 4}),
                ("visibility", {"visibility": "secret"}),
                ("type", {"type": "svc"}),
                ("tags", {"tags": ["x"] * 101}),
            ):
                status, body = await create(client, **fields)
                assert (status, body["error"]["param"]) == (400, param), fields
            assert "does not transcribe" in (await create(client, texts=[]))[1]["message"]
            assert (await call(client, "POST", "/model", json={}))[0] == 415
            assert (await call(client, "GET", "/model"))[1]["total"] == 0
            status, body = await call(client, "GET", "/model/..%2Fx")
            assert (status, body["error"]["param"]) == (400, "id")
            status, voice = await create(client)
            status, body = await call(client, "PATCH", f"/model/{voice['_id']}", data={"title": ""})
            assert (status, body["error"]["param"]) == (400, "title")

    run(test)


def test_the_wallet_and_speech_recognition_are_stubs(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            status, credit = await call(client, "GET", "/wallet/self/api-credit")
            assert status == 200
            assert credit.keys() >= {"_id", "user_id", "credit", "created_at", "updated_at"}
            status, package = await call(client, "GET", "/wallet/self/package")
            assert status == 200
            expected = {"_id", "user_id", "type", "total", "balance", "created_at", "updated_at", "finished_at"}
            assert package.keys() >= expected
            assert isinstance(package["finished_at"], str)
            body = msgspec.msgpack.encode({"audio": b"x", "ignore_timestamps": True})
            headers = {"Content-Type": "application/msgpack"}
            status, body = await call(client, "POST", "/v1/asr", data=body, headers=headers)
            assert (status, body["error"]["code"]) == (501, "not_implemented")

    run(test)


def test_the_model_header_is_ignored(tmp_path: Path) -> None:
    async def test() -> None:
        async with (
            serving(tmp_path) as client,
            client.post("/v1/tts", json={"text": "x"}, headers={"model": "speech-9"}) as reply,
        ):
            assert reply.status == 200

    run(test)
