"""HAProxy configuration for several groups, as a pure function of their addresses.

Requests with ``X-Voice-Id`` go by a consistent hash of it, so that a voice's pages and codes are used where they lie;
a group with half as much again as its share of them passes on what is beyond. Requests without it go to the group with
the fewest connections. (HAProxy's own answer to a hash without a value is to take turns, whatever the load.)
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

VERSION = "2.6"  # of HAProxy, or newer
BALANCE_FACTOR = 150  # per cent of the average load that a group may have by its voices
# HAProxy makes the points of a server on the hash ring of its id modulo 2^20, 16 for each unit of weight.
IDS = 2**20
WEIGHT = 100

_ADDRESS = re.compile(r"([A-Za-z0-9_.\-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_SPEECH = ("/v1/tts", "/v1/tts/live", "/v1/audio/speech", "/v1/codes")
_VOICED_SPEECH = "/v1/text-to-speech/"  # the id of a voice follows


class Options(NamedTuple):
    """Front end. ``listen``: ADDRESS:PORT, the address may be empty. ``certificate``: PEM file with key; "": no TLS.

    ``stats``: where statistics and metrics are shown, "": nowhere. ``dns``: ADDRESS:PORT of the name server that is
    asked again and again for the groups' names, of which some may not exist now; "": names are looked up at the start.
    """

    listen: str = ":8080"
    certificate: str = ""
    stats: str = ""
    dns: str = ""


DEFAULTS = Options()


def render(groups: Sequence[str], options: Options = DEFAULTS) -> str:
    """Build the text of haproxy.cfg. ``groups``: HOST:PORT of each gateway.

    Raises:
        ValueError: addresses that can't be used.
    """
    _check(groups)
    servers = _servers(groups, options)
    sections = [
        ["global", "log stdout format raw local0 info", "user haproxy", "group haproxy"],
        ["defaults", *_defaults()],
        *([["resolvers groups", *_resolvers(options.dns)]] if options.dns else []),
        *([["frontend stats", *_stats(options.stats)]] if options.stats else []),
        ["frontend speech", *_frontend(options)],
        ["backend by_voice", "balance hdr(X-Voice-Id)", "hash-type consistent sdbm avalanche",
         f"hash-balance-factor {BALANCE_FACTOR}", *servers],
        ["backend by_load", "balance leastconn", *servers],
    ]  # fmt: skip
    return "\n\n".join("\n    ".join(section) for section in sections) + "\n"


def _check(groups: Sequence[str]) -> None:
    for group in groups:
        if not _ADDRESS.fullmatch(group):
            raise ValueError(f"{group!r} is not HOST:PORT")
    if not groups or len(set(groups)) < len(groups):
        raise ValueError("no groups, or one of them twice")


def _defaults() -> list[str]:
    """Build the defaults. Timeouts exceed the gateway's, which knows better what it waits for."""
    return [
        "mode http",
        "log global",
        # As of "option httplog", without the query of the URL: a WebSocket may carry its API key there.
        'log-format "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %HM %HP"',
        "option dontlognull",
        "option forwardfor",
        "option http-no-delay",  # sound is passed on as it comes
        "option abortonclose",
        "option clitcpka",
        "option srvtcpka",  # a machine that is gone is noticed by its silence
        "srvtcpka-idle 10s",
        "srvtcpka-intvl 5s",
        "srvtcpka-cnt 3",
        "timeout connect 2s",
        "timeout http-request 10s",  # the headers of a request
        "timeout http-keep-alive 60s",
        "timeout client 10m",
        "timeout server 10m",  # a reply in one piece comes when all is spoken
        "timeout client-fin 30s",
        "timeout tunnel 10m",  # WebSockets
        "timeout check 2s",
        "retries 3",
        "option redispatch 1",  # each try at another group
        "retry-on conn-failure empty-response 503",
        "option httpchk GET /readyz",
        "http-check expect status 200",
        f"default-server check inter 500ms fall 2 rise 2 weight {WEIGHT} {_AT_ONCE}",
        *(_error(status, message) for status, message in _ERRORS.items()),
    ]


def _frontend(options: Options) -> list[str]:
    tls = f" ssl crt {options.certificate} alpn h2,http/1.1" if options.certificate else ""
    voiced = " ".join(prefix + _VOICED_SPEECH for prefix in ("", "/compat"))
    speech = " ".join(prefix + path for prefix in ("", "/compat") for path in _SPEECH)
    return [
        f"bind {options.listen}{tls}",
        "monitor-uri /readyz",
        "monitor fail if { nbsrv(by_voice) lt 1 }",
        # Those of one group, and nobody can say of which.
        "http-request return status 404 if { path /metrics } || { path_beg /debug/ }",
        # Until its first sound, a speech request has changed nothing: it can be made again elsewhere.
        f"acl speech path {speech}",
        f"acl speech path_beg {voiced}",
        "http-request disable-l7-retry unless speech || METH_GET",
        "http-response set-header X-Served-By %s",
        "use_backend by_voice if { req.hdr(X-Voice-Id) -m len gt 0 }",
        "default_backend by_load",
    ]


def _servers(groups: Sequence[str], options: Options) -> list[str]:
    dns = " resolvers groups resolve-prefer ipv4 init-addr none" if options.dns else ""
    return [f"server {_name(group)} {group} id {number}{dns}" for group, number in _ids(groups).items()]


def _name(group: str) -> str:
    return re.sub(r"[^A-Za-z0-9.\-]", "_", group)


def _ids(groups: Sequence[str]) -> dict[str, int]:
    """Derive an id for each group from its address alone, so that other groups keep their voices when one changes."""
    ids: dict[str, int] = {}
    for group in sorted(groups):
        number = zlib.crc32(group.encode()) % IDS
        while number in ids.values() or not number:
            number = (number + 1) % IDS
        ids[group] = number
    return ids


def _resolvers(address: str) -> list[str]:
    holds = [f"hold {kind} 2s" for kind in ("valid", "nx", "obsolete")]
    # What a name server that is gone or confused says changes nothing for a while.
    kept = [f"hold {kind} 60s" for kind in ("other", "refused", "timeout")]
    return [f"nameserver dns {address}", "accepted_payload_size 8192", "timeout resolve 1s", "timeout retry 1s",
            "resolve_retries 3", *holds, *kept]  # fmt: skip


def _stats(address: str) -> list[str]:
    return [
        f"bind {address}",
        "http-request use-service prometheus-exporter if { path /metrics }",
        "stats enable",
        "stats uri /",
        "option dontlog-normal",
    ]


# A group that refuses a connection is taken out before the next check finds it dead: having lost all its connections,
# it would seem the least loaded one, and all tries of a request would go there.
_AT_ONCE = "observe layer4 error-limit 1 on-error mark-down"

_ERRORS = {
    502: "a group of servers broke off",
    503: "no group of servers can be reached",
    504: "a group of servers has not answered in time",
}


def _error(status: int, message: str) -> str:
    """Build a reply of HAProxy itself in the gateway's error format."""
    problem = {"message": message, "type": "server_error", "param": None, "code": "unavailable"}
    body = json.dumps({"status": status, "message": message, "detail": message, "error": problem})
    return f"http-error status {status} content-type application/json string '{body}' hdr Retry-After 2"
