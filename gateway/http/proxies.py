"""Trusted proxies: the address of the client behind them, from ``Forwarded`` or ``X-Forwarded-For``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

from aiohttp import hdrs, web

from common.addresses import is_address
from gateway.http.settings import SETTINGS

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MOST_HOPS = 16
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]+)"?', re.IGNORECASE)


def client_address(request: web.Request) -> str:
    """Return the address of a request's client.

    From the nearest hop on, addresses of trusted proxies are passed over; the first other one is the client's. What a
    client itself writes into the headers is never reached.
    """
    trusted, address = request.app[SETTINGS].trusted_proxies, request.remote or ""
    if not is_trusted(address, trusted):
        return address
    for hop in reversed(_hops(request)[-MOST_HOPS:]):
        if not is_address(hop):
            break
        address = hop
        if not is_trusted(address, trusted):
            break
    return address


def is_trusted(address: str, trusted: Iterable[str]) -> bool:
    """Return whether an address is one of the networks."""
    networks = _networks(tuple(trusted))
    return bool(networks) and is_address(address) and any(ipaddress.ip_address(address) in one for one in networks)


@lru_cache(maxsize=8)
def _networks(names: tuple[str, ...]) -> list[Network]:
    return [ipaddress.ip_network(name, strict=False) for name in names]


def _hops(request: web.Request) -> list[str]:
    """Return the addresses that proxies added, the client's first."""
    forwarded = [element for line in request.headers.getall(hdrs.FORWARDED, []) for element in line.split(",")]
    if forwarded:
        found = [_FOR.search(element) for element in forwarded]
        return [_bare(match[1]) if match else "" for match in found]
    lines = request.headers.getall(hdrs.X_FORWARDED_FOR, [])
    return [_bare(part) for line in lines for part in line.split(",")]


def _bare(address: str) -> str:
    """Return an address without brackets and port."""
    address = address.strip()
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address
