"""Ownership of voices and scopes of keys: a key sees and changes its own voices, and does what its scopes allow."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from gateway_fakes import Client, run, serving
from test_gateway_reference_audio import encoded, tone
from test_gateway_voice_library import ANNA, UPLOAD, library

from gateway.access.auth import scopes_for
from gateway.app import make_app
from gateway.voices.viewer import Viewer

CLIP = encoded(tone(1.5))
KEYS = """
[[key]]
name = "anna"
key = "a"

[[key]]
name = "bert"
key = "b"

[[key]]
name = "speaker"
key = "s"
scopes = ["speak"]

[[key]]
name = "root"
key = "r"
scopes = ["admin", "voices", "speak"]

[[key]]
name = "monitor"
key = "m"
scopes = ["admin"]
"""


def keys(tmp_path: Path) -> str:
    (tmp_path / "keys.toml").write_text(KEYS)
    return str(tmp_path / "keys.toml")


async def ask(client: Client, key: str | None, method: str, path: str, **fields: Any) -> tuple[int, Any]:
    """Status and JSON of a request."""
    headers = {"Accept": "application/json"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    async with client.http.request(method, path, headers=headers, **fields) as reply:
        body = await reply.read()
        return reply.status, msgspec.json.decode(body) if "json" in reply.content_type else body


async def create(client: Client, key: str, visibility: str | None = None, title: str = "t") -> tuple[int, Any]:
    form = aiohttp.FormData()
    form.add_field("title", title)
    form.add_field("texts", "said")
    if visibility is not None:
        form.add_field("visibility", visibility)
    form.add_field("voices", CLIP, filename="a.wav")
    return await ask(client, key, "POST", "/model", data=form)


async def add(client: Client, key: str, voice: str, path: str = "/v1/references/add") -> tuple[int, Any]:
    names = ("id", "text", "audio") if "references" in path else ("name", "ref_text", "audio_sample")
    form = aiohttp.FormData()
    form.add_field(names[0], voice)
    form.add_field(names[1], "said")
    form.add_field(names[2], CLIP, filename="a.wav")
    return await ask(client, key, "POST", path, data=form)


async def listings(client: Client, key: str | None) -> tuple[set[str], set[str], set[str]]:
    """Ids in the listings of the three APIs; None where a key is required."""
    _, fish = await ask(client, key, "GET", "/model?page_size=100")
    _, references = await ask(client, key, "GET", "/v1/references/list")
    _, openai = await ask(client, key, "GET", "/v1/audio/voices")
    return (
        {voice["_id"] for voice in fish.get("items", [])},
        set(references.get("reference_ids", [])),
        {voice["id"] for voice in openai["voices"]} - {"default"},
    )


async def speaks(client: Client, key: str, voice: str) -> tuple[int, int]:
    """Statuses of Fish's and OpenAI's speech in a voice."""
    fish = await ask(client, key, "POST", "/v1/tts", json={"text": "hello", "reference_id": voice})
    openai = await ask(client, key, "POST", "/v1/audio/speech", json={"input": "hello", "voice": voice})
    return fish[0], openai[0]


def test_a_voice_is_seen_and_used_as_its_visibility_says(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=keys(tmp_path)) as client:
            ids = {}
            for visibility in ("private", "unlist", "public"):
                status, voice = await create(client, "a", visibility)
                assert status == 201
                assert (voice["visibility"], voice["author"]["_id"]) == (visibility, "anna")
                ids[visibility] = voice["_id"]
            unnamed = (await create(client, "a"))[1]
            assert unnamed["visibility"] == "private"
            every = {*ids.values(), unnamed["_id"]}
            for key, shown in (("a", every), ("b", {ids["public"]}), ("r", every), ("m", every)):
                assert await listings(client, key) == (shown, shown, shown), key
            assert (await listings(client, None))[2] == {ids["public"]}
            for visibility, voice in ids.items():
                hidden = visibility == "private"
                assert await speaks(client, "a", voice) == (200, 200)
                assert await speaks(client, "b", voice) == ((400, 400) if hidden else (200, 200))
                assert await speaks(client, "s", voice) == ((400, 400) if hidden else (200, 200))
                assert (await ask(client, "b", "GET", f"/model/{voice}"))[0] == (404 if hidden else 200)

    run(test)


def test_a_hidden_voice_is_not_told_apart_from_one_that_does_not_exist(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=keys(tmp_path)) as client:
            assert (await add(client, "a", "Secret"))[0] == 200
            for voice in ("Secret", "secret"):
                for method, path, body in (
                    ("POST", "/v1/tts", {"text": "hello", "reference_id": voice}),
                    ("POST", "/v1/audio/speech", {"input": "hello", "voice": voice}),
                    ("DELETE", "/v1/references/delete", {"reference_id": voice}),
                    ("POST", "/v1/references/update", {"old_reference_id": voice, "new_reference_id": "x"}),
                ):
                    status, reply = await ask(client, "b", method, path, json=body)
                    assert (status, reply["error"]["code"]) in ((400, "voice_not_found"), (404, "voice_not_found"))
                    assert "there are none yet" in reply["message"]
            status, reply = await ask(client, "b", "POST", "/v1/audio/speech", json={"input": "a", "model": "Secret"})
            assert (status, reply["error"]["code"]) == (404, "model_not_found")

    run(test)


@pytest.mark.parametrize("visibility", ["private", "unlist", "public"])
def test_only_the_owner_or_an_admin_changes_a_voice(tmp_path: Path, visibility: str) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=keys(tmp_path)) as client:
            voice = (await create(client, "a", visibility))[1]["_id"]
            refused = 404 if visibility == "private" else 403
            rename = {"old_reference_id": voice, "new_reference_id": "stolen"}
            for method, path, body in (
                ("PATCH", f"/model/{voice}", {"data": {"title": "mine"}}),
                ("DELETE", f"/model/{voice}", {}),
                ("DELETE", "/v1/references/delete", {"json": {"reference_id": voice}}),
                ("POST", "/v1/references/update", {"json": rename}),
            ):
                assert (await ask(client, "b", method, path, **body))[0] == refused, path
            assert (await add(client, "b", voice))[0] == 409
            assert (await ask(client, "a", "GET", f"/model/{voice}"))[1]["title"] == "t"
            assert (await ask(client, "a", "PATCH", f"/model/{voice}", data={"title": "new"}))[0] == 200
            status, changed = await ask(client, "r", "PATCH", f"/model/{voice}", data={"title": "by root"})
            assert (status, changed["author"]["_id"]) == (200, "anna")
            assert (await ask(client, "a", "POST", "/v1/references/update", json=rename))[0] == 200
            assert (await ask(client, "m", "DELETE", "/model/stolen"))[0] == 200

    run(test)


def test_a_cached_voice_is_as_hidden_as_any_other(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, api_keys_file=keys(tmp_path)) as client:
            voice = (await create(client, "a", "public"))[1]["_id"]
            assert await speaks(client, "b", voice) == (200, 200)
            assert (await ask(client, "a", "PATCH", f"/model/{voice}", data={"visibility": "private"}))[0] == 200
            assert await speaks(client, "a", voice) == (200, 200)
            assert await speaks(client, "b", voice) == (400, 400)

    run(test)


def test_without_keys_voices_belong_to_nobody_and_everyone_may_change_them(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            status, voice = await create(client, "any")
            assert (status, voice["author"]["_id"], voice["visibility"]) == (201, "", "private")
            assert (await listings(client, None))[0] == {voice["_id"]}
            assert (await ask(client, None, "PATCH", f"/model/{voice['_id']}", data={"title": "new"}))[0] == 200
        async with serving(tmp_path, api_keys_file=keys(tmp_path)) as client:  # the operator adds keys later
            assert (await listings(client, "b"))[0] == {voice["_id"]}
            assert await speaks(client, "b", voice["_id"]) == (200, 200)
            assert (await ask(client, "b", "DELETE", f"/model/{voice['_id']}"))[0] == 403
            assert (await ask(client, "r", "DELETE", f"/model/{voice['_id']}"))[0] == 200

    run(test)


def test_a_library_of_version_1_is_migrated(tmp_path: Path) -> None:
    voices = library(tmp_path)
    for name, owner in (("by key", "anna"), ("by v4", "192.168.1.7"), ("by v6", "fe80::1"), ("by none", "")):
        voices.add(name, ANNA._replace(owner=owner, visibility="private"), [UPLOAD])
    voices.close()
    with sqlite3.connect(tmp_path / "catalogue.sqlite") as database:
        database.execute("PRAGMA user_version = 1")
    database.close()
    again = library(tmp_path)
    assert {voice.id: voice.owner for voice in again.voices()} == {
        "by key": "anna",
        "by v4": "",
        "by v6": "",
        "by none": "",
    }
    assert again.ids(Viewer("bert")) == ["by none", "by v4", "by v6"]


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("s", {"speak"}), ("a", {"speak", "voices"}), ("m", {"voices", "admin"}), ("r", {"speak", "voices", "admin"})],
)
def test_a_key_does_what_its_scopes_allow(tmp_path: Path, key: str, allowed: set[str]) -> None:
    calls = [
        ("speak", "POST", "/v1/tts", {"json": {"text": "hello"}}),
        ("speak", "POST", "/v1/codes", {"json": {"text": "hello"}}),
        ("speak", "POST", "/v1/audio/speech", {"json": {"input": "hello"}}),
        ("speak", "POST", "/compat/v1/audio/speech", {"json": {"input": "hello"}}),
        ("speak", "POST", "/v1/vqgan/encode", {}),
        ("speak", "POST", "/v1/vqgan/decode", {}),
        ("speak", "GET", "/v1/tts/live", {}),
        ("voices", "POST", "/model", {}),
        ("voices", "PATCH", "/model/x", {}),
        ("voices", "DELETE", "/model/x", {}),
        ("voices", "POST", "/v1/references/add", {}),
        ("voices", "POST", "/v1/references/update", {}),
        ("voices", "DELETE", "/v1/references/delete", {}),
        ("voices", "POST", "/v1/audio/voices", {}),
        ("admin", "GET", "/debug/requests", {}),
        ("admin", "GET", "/debug/requests/x", {}),
        ("admin", "GET", "/debug/trace", {}),
        ("admin", "GET", "/metrics", {}),
    ]

    async def test() -> None:
        async with serving(tmp_path, api_keys_file=keys(tmp_path)) as client:
            for scope, method, path, fields in calls:
                status, reply = await ask(client, key, method, path, **fields)
                refused = status == 403 and reply["error"]["code"] == "insufficient_scope"
                assert refused == (scope not in allowed), (path, status)
                assert (await ask(client, None, method, path, **fields))[0] == 401, path
            for path in ("/model", "/v1/references/list", "/v1/usage", "/v1/models", "/wallet/self/api-credit"):
                assert (await ask(client, key, "GET", path))[0] == 200

    run(test)


def test_every_route_that_works_for_a_client_asks_for_a_scope_or_only_reads(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            routes = [(route.method, route.resource.canonical) for route in make_app(client.gateway).router.routes()]
            without = {(method, route) for method, route in routes if not scopes_for(method, route)}
            assert {route for method, route in without if method not in ("GET", "HEAD")} == {
                "/v1/health",
                "/compat/v1/health",
            }

    run(test)
