"""X-Voice-Id: what a client sent comes back, and who sent none learns the voice that spoke."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import Client, run, serving
from test_gateway_voices import CLIP, add


async def told(client: Client, given: str | None = None, path: str = "/v1/tts", **fields: Any) -> str | None:
    """The header of the reply."""
    headers = {} if given is None else {"X-Voice-Id": given}
    async with client.post(path, json={"text": "hello"} | fields, headers=headers) as reply:
        await reply.read()
        return reply.headers.get("X-Voice-Id")


def test_the_voice_that_spoke_is_told_to_who_named_none_in_the_header(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for voice in ("anna", "zoe"):
                await add(client, voice)
            assert await told(client) is None, "the model's choice has no id"
            assert await told(client, reference_id="anna") == "anna"
            assert await told(client, reference_id="anna", streaming=False) == "anna"
            assert await told(client, reference_id=["anna", "zoe"]) == "anna,zoe"
            assert await told(client, path="/v1/codes", reference_id="zoe") == "zoe"
            assert await told(client, path="/v1/audio/speech", input="hello", voice="zoe") == "zoe"
            client.gateway.voices.default = "zoe"
            assert await told(client) == "zoe"
            clip = {"audio": base64.b64encode(CLIP).decode(), "text": "said"}
            assert await told(client, references=[clip]) is None, "recordings have no id"

    run(test)


@pytest.mark.parametrize("given", ["anna", "any key 1/2; of: theirs", "x" * 256])
def test_the_header_of_a_client_comes_back_in_every_reply(tmp_path: Path, given: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "zoe")
            assert await told(client, given, reference_id="zoe") == given
            assert await told(client, given, reference_id="nobody") == given, "in errors too"
            async with client.http.ws_connect("/v1/tts/live", headers={"X-Voice-Id": given}) as socket:
                assert socket._response.headers["X-Voice-Id"] == given

    run(test)


@pytest.mark.parametrize("given", ["", "x" * 257, "ä"])
def test_a_header_that_makes_no_sense_counts_as_none(tmp_path: Path, given: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "zoe")
            assert await told(client, given, reference_id="zoe") == "zoe"

    run(test)


def test_voices_too_many_for_a_header_are_not_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await add(client, "z" * 200)
            assert await told(client, reference_id=["z" * 200] * 2) is None

    run(test)


def test_pages_of_other_origins_may_send_and_read_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, cors_origins=["https://page.example"]) as client:
            origin = {"Origin": "https://page.example"}
            asked = origin | {"Access-Control-Request-Method": "POST"}
            async with client.http.options("/v1/tts", headers=asked) as reply:
                assert "X-Voice-Id" in reply.headers["Access-Control-Allow-Headers"]
            async with client.get("/version", headers=origin) as reply:
                assert "X-Voice-Id" in reply.headers["Access-Control-Expose-Headers"]

    run(test)
