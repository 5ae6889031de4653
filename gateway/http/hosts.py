"""Host check: refuses requests for names that others could point at this server (DNS rebinding).

A page whose host name resolves to this server counts for browsers as a page of this server. So only names are accepted
that public DNS can't hand to a stranger (addresses, names without a dot, and the domains for local use), the
configured hosts, this machine's own name, and those of ``gateway.allowed_hosts``.
"""

from __future__ import annotations

import re
import socket

from aiohttp import hdrs, web

from common.addresses import is_address
from gateway.http.errors import ApiError
from gateway.http.settings import SETTINGS

LOCAL_DOMAINS = (".localhost", ".local", ".internal", ".home.arpa", ".test")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+)(:[0-9]{1,5})?")
_OWN_NAME = socket.gethostname().lower()


def check(request: web.Request) -> None:
    """Check the host that a request names.

    Raises:
        ApiError: 421: it is not one of this server's.
    """
    host = request.headers.get(hdrs.HOST)
    if host is None:  # HTTP/1.0, which no browser speaks
        return
    settings = request.app[SETTINGS]
    if "*" in settings.allowed_hosts:
        return
    name = _name(host)
    if not name or not (_is_local(name) or name in (settings.host, settings.admin_host, *settings.allowed_hosts)):
        message = f"Host: {host[:100]!r} is not a name of this server; see gateway.allowed_hosts"
        raise ApiError(421, "host_not_allowed", message, headers={"Connection": "close"})


def _name(host: str) -> str:
    """Return the name of a Host header in lower case, without its port; "" if it is malformed."""
    match = _HOST.fullmatch(host.strip())
    return match[1].strip("[]").rstrip(".").lower() if match else ""


def _is_local(name: str) -> bool:
    return "." not in name or name == _OWN_NAME or name.endswith(LOCAL_DOMAINS) or is_address(name)
