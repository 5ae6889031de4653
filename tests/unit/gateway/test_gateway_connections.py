"""Connections: idle ones are cut off, one address can't take all, and health checks are answered in any case."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest
from gateway_fakes import Client, eventually, post, run, serving

from gateway.http import connections as module

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(client: Client, source: str = "127.0.0.1", sent: bytes = b"") -> Pair:
    host, port = client.server.address.split(":")
    pair = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    pair[1].write(sent)
    return pair


async def ask(client: Client, path: str, source: str = "127.0.0.1") -> tuple[int, dict[str, object]]:
    """Status and JSON body of a request on a connection of its own."""
    reader, writer = await connect(
        client, source, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), msgspec.json.decode(body)


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_connection_without_a_first_request_is_cut_off(tmp_path: Path, sent: bytes) -> None:
    async def test() -> None:
        async with serving(tmp_path, first_request_timeout=0.2) as client:
            reader, writer = await connect(client, sent=sent)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    run(test)


def test_a_connection_with_a_request_stays_open_between_requests(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, first_request_timeout=0.2) as client:
            reader, writer = await connect(client)
            for _ in range(2):
                writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"}"), 5)
                await asyncio.sleep(0.3)
            assert not reader.at_eof()
            writer.close()

    run(test)


def test_one_address_can_not_take_all_connections(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_connections_per_address=2) as client:
            held = [await connect(client) for _ in range(2)]
            status, body = await ask(client, "/v1/models")
            assert (status, body["error"]["code"]) == (503, "too_many_connections")  # type: ignore[index]
            assert "127.0.0.1" in str(body["message"])
            assert (await ask(client, "/v1/models", source="127.0.0.2"))[0] == 200
            held.pop()[1].close()
            gauge = "shoal_http_connections"
            await eventually(lambda: client.registry.get_sample_value(gauge) < 2)
            assert (await ask(client, "/v1/models"))[0] == 200
            held.pop()[1].close()

    run(test)


@pytest.mark.parametrize("bound", ["max_connections", "max_connections_per_address"])
def test_health_is_told_truly_beyond_the_bounds(tmp_path: Path, bound: str) -> None:
    async def test() -> None:
        async with serving(tmp_path, **{bound: 2}) as client:
            held = [await connect(client) for _ in range(2)]
            for path in ("/livez", "/healthz", "/readyz"):
                assert (await ask(client, path))[0] == 200
            for path in ("/health/", "/livez?x", "/metrics", "/debug/requests", "/"):
                assert (await ask(client, path))[0] == 503
            client.engine.reasons = {"ar_worker": "lost"}
            assert await ask(client, "/readyz") == (503, {"status": "not ready", "reasons": {"ar_worker": "lost"}})
            assert (await ask(client, "/livez"))[0] == 200
            for _, writer in held:
                writer.close()

    run(test)


def test_idle_sockets_by_the_hundred_leave_health_and_other_addresses_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REFUSALS", 8)

    async def test() -> None:
        async with serving(tmp_path, max_connections=40, max_connections_per_address=10) as client:
            flood = [await connect(client) for _ in range(200)]
            assert (await ask(client, "/livez"))[0] == (await ask(client, "/readyz"))[0] == 200
            reply, _ = await post(client, text="hello")
            assert reply.status == 503
            assert (await ask(client, "/v1/models", source="127.0.0.2"))[0] == 200
            await eventually(lambda: sum(reader.at_eof() or bool(reader.exception()) for reader, _ in flood) > 180)
            for _, writer in flood:
                writer.close()

    run(test)
