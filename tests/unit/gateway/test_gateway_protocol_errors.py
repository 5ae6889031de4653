"""Requests that HTTP itself forbids are answered, and nobody's log fills up with them."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from gateway_fakes import Client, run, serving

BODY = b'{"text": "Hello.", "format": "pcm"}'


async def raw(client: Client, request: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer, read until the server closes."""
    host, port = client.server.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    return head, body


def speech(*headers: str, version: str = "1.1", path: str = "/v1/tts") -> bytes:
    common = ["Host: x", "Content-Type: application/json", f"Content-Length: {len(BODY)}", *headers]
    return "\r\n".join([f"POST {path} HTTP/{version}", *common, "", ""]).encode() + BODY


@pytest.mark.parametrize("expectation", ["200-ok", "100-continue, x", "nonsense"])
@pytest.mark.parametrize("path", ["/v1/tts", "/compat/v1/tts", "/v1/audio/speech"])
def test_an_expectation_that_can_t_be_met_is_refused_with_the_usual_body(
    tmp_path: Path, expectation: str, path: str
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            head, body = await raw(client, speech(f"Expect: {expectation}", "Connection: close", path=path))
            assert head.startswith(b"HTTP/1.1 417 ")
            assert json.loads(body)["error"]["code"] == "expectation_failed"
            assert b"x-request-id: " in head.lower()
            assert client.engine.submitted == []

    run(test)


def test_an_expectation_at_an_unknown_route_is_answered_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            head, _ = await raw(client, speech("Expect: nonsense", "Connection: close", path="/nowhere"))
            assert head.startswith(b"HTTP/1.1 417 ")

    run(test)


@pytest.mark.parametrize("expectation", ["100-continue", "100-Continue"])
def test_100_continue_is_met(tmp_path: Path, expectation: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            head, body = await raw(client, speech(f"Expect: {expectation}", "Connection: close"))
            assert head == b"HTTP/1.1 100 Continue"
            assert body.startswith(b"HTTP/1.1 200 OK")

    run(test)


@pytest.mark.parametrize(
    "request_line",
    [
        b"POST /v1/tts HTTP/9.x\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
)
def test_a_malformed_request_leaves_no_traceback_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request_line: bytes
) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            head, _ = await raw(client, request_line)
            assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))

    with caplog.at_level(logging.INFO):
        run(test)
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO]
