"""Trusted proxies: the client's address comes from their headers, and from nobody else's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from gateway_fakes import run, serving

from common.config import ConfigError, resolve

TRUSTED = ["127.0.0.1", "10.0.0.0/8", "2001:db8::/32"]
CASES = [
    ({}, "127.0.0.1"),
    ({"X-Forwarded-For": "203.0.113.7"}, "203.0.113.7"),
    ({"X-Forwarded-For": "6.6.6.6, 203.0.113.7"}, "203.0.113.7"),  # the first is what the client itself wrote
    ({"X-Forwarded-For": "6.6.6.6, 203.0.113.7, 10.1.2.3"}, "203.0.113.7"),
    ({"X-Forwarded-For": "10.9.9.9, 10.1.2.3"}, "10.9.9.9"),
    ({"X-Forwarded-For": "203.0.113.7:4711"}, "203.0.113.7"),
    ({"X-Forwarded-For": "[2001:db9::1]:4711, 2001:db8::5"}, "2001:db9::1"),
    ({"X-Forwarded-For": "unknown"}, "127.0.0.1"),
    ({"X-Forwarded-For": "203.0.113.7, garbage, 10.1.2.3"}, "10.1.2.3"),
    ({"X-Forwarded-For": ""}, "127.0.0.1"),
    ({"Forwarded": 'for="[2001:db9::1]:80";proto=https'}, "2001:db9::1"),
    ({"Forwarded": "proto=https;for=203.0.113.7, for=10.0.0.1"}, "203.0.113.7"),
    ({"Forwarded": "for=_hidden"}, "127.0.0.1"),
    ({"Forwarded": "for=203.0.113.8", "X-Forwarded-For": "203.0.113.7"}, "203.0.113.8"),
    ({"X-Forwarded-For": ", ".join(["203.0.113.7"] + ["10.0.0.1"] * 1000)}, "10.0.0.1"),
]


@pytest.mark.parametrize(("headers", "address"), CASES)
@pytest.mark.parametrize("trusted", [True, False])
def test_the_clients_address_is_the_first_that_no_proxy_has(
    tmp_path: Path, headers: dict[str, str], address: str, trusted: bool
) -> None:
    async def test() -> None:
        async with serving(tmp_path, trusted_proxies=TRUSTED if trusted else []) as client:
            async with client.post("/v1/tts", json={"text": "hello"}, headers=headers) as reply:
                assert reply.status == 200
            assert [submit.client for submit, _ in client.engine.submitted] == [address if trusted else "127.0.0.1"]

    run(test)


def test_a_proxy_has_no_bound_of_its_own(tmp_path: Path) -> None:
    async def test() -> None:
        async with serving(tmp_path, max_connections_per_address=1, trusted_proxies=["127.0.0.0/8"]) as client:
            host, port = client.server.address.split(":")
            held = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
            async with client.get("/v1/models") as reply:
                assert reply.status == 200
            for _, writer in held:
                writer.close()

    run(test)


@pytest.mark.parametrize("network", ["proxy.example", "10.0.0.0/33", "1.2.3", ""])
def test_what_is_no_network_is_an_error_at_the_start(network: str) -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        resolve(overrides=[f'gateway.trusted_proxies=["{network}"]'])
