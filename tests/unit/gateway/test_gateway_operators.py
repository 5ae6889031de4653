"""The operators' listener: health, metrics and debugging without keys and free of the bounds of clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
from gateway_fakes import Client, run, serving

KEYS = '[[key]]\nname = "anna"\nkey = "a"\n\n[[key]]\nname = "root"\nkey = "r"\nscopes = ["admin"]\n'


async def status(client: Client, path: str, address: str, key: str | None = None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}", headers=headers) as reply:
        await reply.read()
        return reply.status


def test_operators_need_no_key_and_clients_need_the_admin_scope(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(KEYS)

    async def test() -> None:
        async with serving(tmp_path, api_keys_file=str(tmp_path / "keys.toml")) as client:
            public, admin = client.server.address, client.server.admin_address
            for path in ("/metrics", "/debug/requests", "/debug/trace"):
                assert await status(client, path, admin) == 200
                assert await status(client, path, public) == 401
                assert await status(client, path, public, "a") == 403
                assert await status(client, path, public, "r") == 200
            for path in ("/livez", "/readyz", "/health", "/v1/health", "/version"):
                assert await status(client, path, admin) == await status(client, path, public) == 200

    run(test)


def test_operators_get_nothing_of_what_clients_get(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            for path in ("/", "/model", "/v1/models", "/v1/audio/voices", "/v1/usage", "/openapi.json"):
                assert await status(client, path, client.server.admin_address) == 404

    run(test)


def test_operators_are_served_when_clients_hold_all_connections(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_connections=3) as client:
            host, port = client.server.address.split(":")
            idle = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
            assert await status(client, "/v1/models", client.server.address) == 503
            for path in ("/livez", "/readyz", "/metrics", "/debug/requests"):
                assert await status(client, path, client.server.admin_address) == 200
            for _, writer in idle:
                writer.close()

    run(test)


def test_a_drain_shows_at_the_operators_listener(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path) as client:
            await client.server.drain(0.1)
            assert await status(client, "/readyz", client.server.admin_address) == 503
            assert await status(client, "/livez", client.server.admin_address) == 200
            assert await status(client, "/debug/requests", client.server.admin_address) == 200

    run(test)
