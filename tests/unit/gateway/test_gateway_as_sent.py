"""Requests as people and programs really send them: fields, forms, paths, heads and connections."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from gateway_fakes import MINI_MODEL, Client, Player, eventually, run, serving, speak
from test_gateway_openai import recording

from gateway.http.request_path import tidied

PREFLIGHT = "authorization,content-type,x-stainless-os,x-stainless-retry-count,x-api-key"


async def status(client: Client, path: str = "/v1/tts", **fields: Any) -> tuple[int, dict[str, Any]]:
    async with client.post(path, json=fields) as reply:
        body = await reply.read()
        return reply.status, msgspec.json.decode(body) if reply.status != 200 else dict(reply.headers)


@pytest.mark.parametrize("name", ["MP3", "Wav", " pcm", "opus ", "FLAC\n", "Aac"])
def test_case_and_blanks_of_names_mean_nothing(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            found = [
                (await status(client, text="hello", format=name))[0],
                (await status(client, "/v1/audio/speech", input="hello", response_format=name))[0],
                (await status(client, text="hello", latency=" Normal", priority="BATCH"))[0],
            ]
            assert found == [200] * 3

    run(test)


@pytest.mark.parametrize(
    ("field", "known"), [("format", "mp3, wav, pcm"), ("latency", "normal"), ("priority", "batch")]
)
def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path, field: str, known: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            code, body = await status(client, text="hello", **{field: "wave"})
            assert (code, body["error"]["param"]) == (400, field)
            assert known in body["message"]

    run(test)


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_string_counts_as_an_absent_field(tmp_path: Path, blank: str) -> None:
    names = ("reference_id", "references", "format", "latency", "seed", "temperature", "sample_rate", "prosody")

    async def test() -> None:
        async with serving(tmp_path) as client:
            for name in names:
                assert (await status(client, text="hello", **{name: blank}))[0] == 200, name
            assert (await status(client, text="hello", reference_id=[blank]))[0] == 200
            fields = dict.fromkeys(
                ("response_format", "stream_format", "ref_audio", "ref_text", "speed", "voice"), blank
            )
            assert (await status(client, "/v1/audio/speech", input="hello", model=blank, **fields))[0] == 200
            form = aiohttp.FormData({"text": "hello", "reference_id": blank}, default_to_multipart=True)
            async with client.post("/v1/tts", data=form) as reply:
                assert reply.status == 200
            assert (await status(client, text=blank))[0] == 400

    run(test)


def test_a_blank_voice_at_the_socket_is_the_default_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, MINI_MODEL) as client, client.http.ws_connect("/v1/tts/live") as ws:
            client.engine.plan = speak(2)
            start = {"event": "start", "request": {"text": "Hello.", "reference_id": "", "format": " PCM "}}
            for message in (start, {"event": "stop"}):
                await ws.send_bytes(msgspec.msgpack.encode(message))
            while (event := msgspec.msgpack.decode(await ws.receive_bytes()))["event"] != "finish":
                assert event["event"] == "audio"
            assert event["reason"] == "stop"

    run(test)


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "audio/wav"}, {"Content-Type": "application/octet-stream"}])
@pytest.mark.parametrize("disposition", ['form-data; name="%s"', 'form-data; name="%s"; filename=""'])
@pytest.mark.parametrize(
    ("path", "name", "more"),
    [
        ("/v1/references/add?format=json", "audio", {"id": "anna", "text": "said"}),
        ("/v1/audio/voices", "audio_sample", {"name": "anna", "ref_text": "said"}),
        ("/model", "voices", {"title": "anna", "texts": "said"}),
        ("/v1/tts", "reference_audio", {"text": "hello", "reference_text": "said"}),
    ],
)
def test_a_recording_needs_no_file_name(
    tmp_path: Path, headers: dict[str, str], disposition: str, path: str, name: str, more: dict[str, str]
) -> None:
    lines = {"Content-Disposition": disposition % name} | headers
    head = "".join(f"{key}: {value}\r\n" for key, value in lines.items()).encode()
    parts = [head + b"\r\n" + recording()]
    parts += [f'Content-Disposition: form-data; name="{key}"\r\n\r\n{value}'.encode() for key, value in more.items()]
    body = b"".join(b"--frontier\r\n" + part + b"\r\n" for part in parts) + b"--frontier--\r\n"

    async def test() -> None:
        async with serving(tmp_path) as client:
            form = {"Content-Type": "multipart/form-data; boundary=frontier"}
            async with client.post(path, data=body, headers=form) as reply:
                assert reply.status in (200, 201), await reply.text()
            assert len(client.engine.encoded) == 1

    run(test)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("//v1/tts", "/v1/tts"),
        ("/v1//audio///speech/", "/v1/audio/speech"),
        ("/v1/v1/audio/speech", "/v1/audio/speech"),
        ("/v1/v1/v1/models", "/v1/models"),
        ("/compat/v1/v1/models", "/compat/v1/models"),
        ("/audio/speech", "/v1/audio/speech"),
        ("/models?x=/a//b/", "/v1/models?x=/a//b/"),
        ("/tts/", "/v1/tts"),
        ("/v1/audio/speech/audio/speech", "/v1/audio/speech"),
        ("/v1/audio/speech/v1/models", "/v1/models"),
        ("/v1/tts/v1/tts", "/v1/tts"),
        *(
            (path, path)
            for path in ("/", "/model", "/model/abc", "/v1/tts", "/v1/tts/live", "/web/page.js", "/nothing")
        ),
    ],
)
def test_mistyped_base_addresses_reach_the_route_that_was_meant(sent: str, meant: str) -> None:
    assert tidied(sent) == meant
    assert tidied(meant) == meant


def test_a_mistyped_path_is_served_under_the_rules_of_its_route(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for path in ("//v1/tts", "/v1/v1/tts/", "/tts"):
                async with client.post(f"http://{client.server.address}{path}", json={"text": "hello"}) as reply:
                    assert reply.status == 200, path
            labels = {"route": "/v1/tts", "method": "POST", "code": "200"}
            await eventually(lambda: client.registry.get_sample_value("shoal_http_requests_total", labels) == 3)

    run(test)


def test_an_unknown_route_or_method_comes_with_a_hint(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            async with client.get("/v1/tts") as reply:
                assert (reply.status, reply.headers["Allow"]) == (405, "POST")
                assert "/v1/tts takes POST, not GET" in (await reply.json())["message"]
            async with client.post("/v1/speak", json={}) as reply:
                assert reply.status == 404
                assert "POST /v1/speak" in (await reply.json())["message"]

    run(test)


@pytest.mark.parametrize(("origin", "allowed"), [("https://page.example", True), ("https://other.example", False)])
def test_a_preflight_grants_the_headers_it_asks_for(tmp_path: Path, origin: str, allowed: bool) -> None:
    async def test() -> None:
        async with serving(tmp_path, cors_origins=["https://page.example"]) as client:
            headers = {"Origin": origin, "Access-Control-Request-Method": "PUT"}
            headers["Access-Control-Request-Headers"] = PREFLIGHT
            async with client.http.options("/v1/audio/speech", headers=headers) as reply:
                assert (reply.headers.get("Access-Control-Allow-Headers") == PREFLIGHT) == allowed
                assert ("PUT" in reply.headers.get("Access-Control-Allow-Methods", "")) == allowed
                assert "Access-Control-Request-Headers" in reply.headers.getall("Vary")

    run(test)


def address(client: Client) -> tuple[str, int]:
    host, _, port = client.server.address.rpartition(":")
    return host, int(port)


async def never(player: Player) -> None:
    await asyncio.sleep(3600)


async def raw(client: Client, request: bytes, half_close: bool) -> bytes:
    """The whole answer to bytes on a connection of their own."""
    reader, writer = await asyncio.open_connection(*address(client))
    writer.write(request)
    if half_close:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 5)
    finally:
        writer.close()


def post_request(path: str, body: bytes, more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}"
    return head.encode() + b"\r\n" + body


@pytest.mark.parametrize("streaming", [b"true", b"false"])
@pytest.mark.parametrize("path", ["/v1/tts", "/v1/audio/speech", "/v1/codes"])
def test_a_client_that_only_stops_sending_gets_its_reply(tmp_path: Path, streaming: bytes, path: str) -> None:
    async def slow(player: Player) -> None:
        await asyncio.sleep(0.15)  # longer than the first look for a client that has gone
        player.give(2)
        await asyncio.sleep(0.1)
        player.give(1)
        player.end()

    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = slow
            name = b"input" if "audio" in path else b"text"
            body = b'{"%s": "Half a socket.", "stream": %s, "streaming": %s}' % (name, streaming, streaming)
            answer = await raw(client, post_request(path, body), half_close=True)
            final = answer.rpartition(b"HTTP/1.1 200 OK\r\n")
            assert final[1], answer[:200]
            assert len(final[2]) > 100
            assert client.registry.get_sample_value("shoal_client_disconnects_total") == 0

    run(test)


def test_a_client_that_has_gone_is_cancelled_soon(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            client.engine.plan = never
            connection = socket.create_connection(address(client))
            connection.sendall(post_request("/v1/tts", b'{"text": "Nobody hears this.", "streaming": false}'))
            await eventually(lambda: client.engine.submitted)
            connection.close()
            await eventually(lambda: client.engine.closed == ["cancelled"])

    run(test)


@pytest.mark.parametrize("size", [9_000, 16_000, 30_000])
def test_heads_of_32_kb_are_served(tmp_path: Path, size: int) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for headers in ({"Cookie": "c" * size}, {f"X-{number}": "v" * (size // 200) for number in range(200)}):
                async with client.post("/v1/tts", json={"text": "hello"}, headers=headers) as reply:
                    assert reply.status == 200

    run(test)


@pytest.mark.parametrize(
    ("request_", "status_", "code"),
    [
        (post_request("/v1/tts", b"{}", f"Cookie: {'c' * 40_000}\r\n"), b"431", "headers_too_large"),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", b"431", "headers_too_large"),
        (b"GET / HTTP/1.1\r\nno header at all\r\n\r\n", b"400", "bad_request"),
        (b"nonsense\r\n\r\n", b"400", "bad_request"),
    ],
)
def test_a_head_that_cannot_be_read_gets_the_usual_body(
    tmp_path: Path, request_: bytes, status_: bytes, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            head, _, body = (await raw(client, request_, half_close=False)).partition(b"\r\n\r\n")
            assert head.split()[1] == status_
            assert b"X-Request-Id: " in head
            assert msgspec.json.decode(body)["error"]["code"] == code
            assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]

    run(test)
