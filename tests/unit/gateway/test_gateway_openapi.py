"""The description of the API, held against the routes, the types that check fields, and the replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import aiohttp
import msgspec
import pytest
from aiohttp import hdrs
from gateway_fakes import TINY_MODEL, Client, post, run, serving
from gateway_sound import recording

from common.config import Gateway as Settings
from gateway import app
from gateway.audio import Delivery, Pipeline
from gateway.errors import RequestError
from gateway.schema import fields, openai_fields, replies
from gateway.schema.openapi.operations import OPERATIONS, SOUND_TYPES
from gateway.schema.openapi.schemas import DESCRIPTIONS, components

SCHEMAS = components(Settings(), TINY_MODEL.context)
READ = [
    ("/v1/models", replies.Models),
    ("/v1/models/tts-1", replies.ModelFacts),
    ("/v1/audio/models", replies.SpeechModels),
    ("/v1/audio/voices", replies.ListedVoices),
    ("/v1/test", replies.Status),
    ("/v1/references/list?format=json", replies.References),
    ("/model", replies.FishVoices),
    ("/wallet/self/api-credit", replies.Credit),
    ("/wallet/self/package", replies.Package),
    ("/v1/health", replies.Status),
    ("/health", replies.Health),
    ("/healthz", replies.Status),
    ("/livez", replies.Status),
    ("/readyz", replies.Status),
    ("/version", replies.Version),
    ("/status", replies.PageStatus),
    ("/model/nobody", replies.Error),
    ("/debug/requests", replies.DebugRequests),
    ("/debug/trace", replies.Trace),
    ("/debug/requests/nobody", replies.Error),
    ("/v1/usage", replies.Error),
]


async def described(client: Client) -> dict[str, Any]:
    async with client.get("/openapi.json") as reply:
        assert reply.content_type == "application/json"
        found: dict[str, Any] = await reply.json()
        return found


def test_it_describes_the_routes_there_are_and_no_others(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            document = await described(client)
            routes = app.make_app(client.gateway).router.routes()
            there = {(route.method, route.resource.canonical) for route in routes if route.resource is not None}
            told = set()
            for path, item in document["paths"].items():
                prefixes = [server["url"].rstrip("/") for server in item.pop("servers", [{"url": ""}])]
                told |= {(method.upper(), prefix + path) for method in item for prefix in prefixes}
            assert told == {(method, path) for method, path in there if method != hdrs.METH_HEAD}
            assert {(method, path) for method, path in told if not path.startswith("/compat")} == set(OPERATIONS)

    run(test)


def test_every_reference_leads_somewhere(tmp_path: Path) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
            yield from references(entry)

    async def test() -> None:
        async with serving(tmp_path) as client:
            document = await described(client)
        assert document["openapi"].startswith("3.1")
        found = set(references(document))
        assert len(found) > 20
        for reference in found:
            place = document
            for step in reference.removeprefix("#/").split("/"):
                place = place[step]

    run(test)


def test_the_fields_are_those_that_are_checked() -> None:
    speech, openai = (SCHEMAS[name]["properties"].keys() for name in ("SpeechRequest", "OpenAISpeechRequest"))
    assert speech == set(fields.Fields.__struct_fields__)
    ours = {fish: openai for openai, fish in openai_fields.RENAMED.items()}
    fish = {ours.get(name, name) for name in speech}
    assert openai == fish | set(openai_fields.OwnFields.__struct_fields__) | {"speed", "ref_audio"}
    assert set(DESCRIPTIONS) <= speech


def _ends() -> Iterator[tuple[str, float, float]]:
    """Each numeric field with an end of its range, and a value beyond."""
    properties = dict(SCHEMAS["SpeechRequest"]["properties"])
    for name, schema in [*properties.items(), *properties["prosody"]["anyOf"][0]["properties"].items()]:
        for option in schema.get("anyOf", []):
            step = 1 if option.get("type") == "integer" else 0.01
            if "minimum" in option:
                yield name, option["minimum"], option["minimum"] - step
            if "exclusiveMinimum" in option:
                yield name, option["exclusiveMinimum"] + step, option["exclusiveMinimum"]
            if "maximum" in option:
                yield name, option["maximum"], option["maximum"] + step


@pytest.mark.parametrize(("name", "end", "beyond"), list(_ends()))
def test_ranges_are_those_that_are_checked(name: str, end: float, beyond: float) -> None:
    nested = name in fields.Prosody.__struct_fields__

    def parse(value: float) -> None:
        values = {"prosody": {name: value}} if nested else {name: value}
        fields.parse({"text": "Hello."} | values, TINY_MODEL, Settings())

    parse(end)
    with pytest.raises(RequestError) as caught:
        parse(beyond)
    assert caught.value.param == (f"prosody.{name}" if nested else name)


def test_there_are_ranges() -> None:
    assert {"seed", "top_p", "sample_rate", "speed", "max_new_tokens"} <= {name for name, _, _ in _ends()}


@pytest.mark.parametrize(("path", "kind"), READ)
def test_replies_are_as_described(tmp_path: Path, path: str, kind: type[Any]) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client, client.get(path) as reply:
            msgspec.json.decode(await reply.read(), type=kind)

    run(test)


def test_replies_of_the_library_are_as_described(tmp_path: Path) -> None:
    def form(**texts: str) -> aiohttp.FormData:
        form = aiohttp.FormData(texts)
        for name in ("audio", "audio_sample", "voices"):
            form.add_field(name, recording(), filename="voice.wav")
        return form

    async def test() -> None:
        async with serving(tmp_path) as client:

            async def ask(method: str, path: str, kind: type[Any], **options: Any) -> Any:
                async with client.http.request(method, path, **options) as reply:
                    return msgspec.json.decode(await reply.read(), type=kind)

            named = form(id="anna", text="Hi.")
            await ask("POST", "/v1/references/add?format=json", replies.ReferenceChanged, data=named)
            await ask("POST", "/v1/audio/voices", replies.CreatedVoice, data=form(name="ben", ref_text="Hi."))
            voice = await ask("POST", "/model", replies.FishVoice, data=form(title="Cleo", texts="Hi."))
            assert (await ask("GET", "/model", replies.FishVoices)).total == 3
            await ask("PATCH", f"/model/{voice.id}", replies.FishVoice, data={"title": "Clio"})
            await ask("GET", f"/model/{voice.id}", replies.FishVoice)
            await ask("DELETE", f"/model/{voice.id}", replies.Deleted)
            names = {"old_reference_id": "anna", "new_reference_id": "hanna"}
            await ask("POST", "/v1/references/update?format=json", replies.ReferenceRenamed, json=names)
            gone = {"reference_id": "hanna"}
            await ask("DELETE", "/v1/references/delete?format=json", replies.ReferenceChanged, json=gone)

    run(test)


def test_not_being_ready_is_as_described(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.reasons = {"ar_worker": "starting"}
            async with client.get("/readyz") as reply:
                msgspec.json.decode(await reply.read(), type=replies.NotReady)

    run(test)


def test_a_used_key_is_as_described(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "anna"\nkey = "secret"\n')

    async def test() -> None:
        async with serving(tmp_path, api_keys_file=str(keys)) as client:
            async with client.get("/v1/usage", headers={"Authorization": "Bearer secret"}) as reply:
                msgspec.json.decode(await reply.read(), type=replies.Usage)
            paths = (await described(client))["paths"]
            assert paths["/v1/tts"]["post"]["security"] == [{"key": []}]
            assert paths["/v1/models"]["get"]["security"] == [{"key": []}, {}]
            assert "security" not in paths["/v1/health"]["get"]

    run(test)


def test_all_formats_are_described() -> None:
    types = [Pipeline(Delivery(name, 24_000), 24_000).media_type for name in _formats()]
    assert {media_type.partition(";")[0] for media_type in types} == set(SOUND_TYPES)


def test_errors_are_as_described(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            document = await described(client)
            for fields_sent in ({}, {"text": "Hello.", "top_p": 3}, {"text": "Hello.", "reference_id": "nobody"}):
                reply, body = await post(client, **fields_sent)
                msgspec.json.decode(body, type=replies.Error)
                assert str(reply.status) in document["paths"]["/v1/tts"]["post"]["responses"]

    run(test)


def _formats() -> list[Any]:
    return list(get_args(fields.Format))
