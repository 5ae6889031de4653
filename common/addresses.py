"""IP addresses: tells them from names, and loopback ones from those that others reach."""

from __future__ import annotations

import ipaddress


def is_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, without port and brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is reached from this machine only: a loopback address, or localhost."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"
