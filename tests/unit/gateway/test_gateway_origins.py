"""Pages of other sites and other host names get nothing: Origin against Host, and the host names of this server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import aiohttp
import pytest
from gateway_fakes import Client, run, serving

FOREIGN = ["http://evil.example", "https://evil.example", "null", "http://127.0.0.1:1", "file://", "", "evil"]


async def answer(client: Client, host: str | None, path: str = "/livez", address: str = "") -> int:
    """Status of a request that names a host; None: HTTP/1.0 without one."""
    reader, writer = await asyncio.open_connection(*(address or client.server.address).split(":"))
    head = f"GET {path} HTTP/1.0\r\n" if host is None else f"GET {path} HTTP/1.1\r\nHost: {host}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize("origin", FOREIGN)
def test_without_fetch_metadata_the_origin_decides(tmp_path: Path, origin: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            form = {"id": "planted", "text": "x"}
            for method, path in (("POST", "/v1/references/add"), ("DELETE", "/model/x"), ("POST", "/v1/tts")):
                async with client.http.request(method, path, data=form, headers={"Origin": origin}) as reply:
                    assert (reply.status, (await reply.json())["error"]["code"]) == (403, "origin_not_allowed")
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.http.ws_connect("/v1/tts/live", headers={"Origin": origin})
            assert refused.value.status == 403

    run(test)


def test_the_servers_own_pages_and_programs_are_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            body = {"text": "hello"}
            own = f"http://{client.server.address}"
            for headers in ({}, {"Origin": own}, {"Origin": own.upper()}):
                async with client.post("/v1/tts", json=body, headers=headers) as reply:
                    assert reply.status == 200
            for origin, host in (("https://tts.local", "tts.local"), ("http://tts.local", "tts.local:80")):
                async with client.post("/v1/tts", json=body, headers={"Origin": origin, "Host": host}) as reply:
                    assert reply.status == 200
            async with client.http.ws_connect("/v1/tts/live", headers={"Origin": own}) as opened:
                assert not opened.closed

    run(test)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.com", "a:b:c", "", "[::1"]
)
def test_other_host_names_get_nothing(tmp_path: Path, host: str) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for address in (client.server.address, client.server.admin_address):
                for path in ("/livez", "/debug/requests", "/metrics", "/version"):
                    assert await answer(client, host, path, address) in (400, 421), path
            for path in ("/model", "/v1/audio/voices", "/", "/openapi.json", "/unknown"):
                assert await answer(client, host, path) in (400, 421), path

    run(test)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1",
        "10.1.2.3:80",
        "[::1]:8080",
        "shoal",
        "box.local",
        "a.localhost.",
        None,
    ],
)
def test_local_names_and_addresses_are_served(tmp_path: Path, host: str | None) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            assert await answer(client, host) == 200

    run(test)


def test_configured_names_are_served(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, allowed_hosts=["tts.example.com"], host="speech.example.org") as client:
            for host in ("tts.example.com", "TTS.example.com:443", "speech.example.org", socket.gethostname()):
                assert await answer(client, host) == 200
            assert await answer(client, "example.com") == 421
        async with serving(tmp_path, allowed_hosts=["*"]) as client:
            assert await answer(client, "anything.example") == 200

    run(test)
