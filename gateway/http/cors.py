"""CORS: which pages of other origins may use the API, and what they may send and read."""

from __future__ import annotations

from aiohttp import hdrs, web

from gateway.http.errors import ApiError
from gateway.http.settings import SETTINGS

EXPOSED = "X-Request-Id, X-Sample-Rate, X-Seed, X-Finish-Reason, X-Frames, X-Ignored-Fields, X-Voice-Id, Retry-After"
# For a preflight that names no headers.
ALLOWED_HEADERS = "Authorization, Content-Type, Idempotency-Key, X-Request-Id, X-Voice-Id, Model, xi-api-key"
ALLOWED_METHODS = "GET, POST, PUT, PATCH, DELETE"
MAX_AGE = "7200"  # seconds; browsers keep it no longer

_PORTS = {"http": ":80", "https": ":443"}  # which a URL may leave out
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def preflight(request: web.Request) -> web.Response | None:
    """Answer a CORS preflight; None for any other request."""
    if request.method != "OPTIONS" or hdrs.ACCESS_CONTROL_REQUEST_METHOD not in request.headers:
        return None
    response = web.Response(status=204, headers={hdrs.VARY: hdrs.ACCESS_CONTROL_REQUEST_HEADERS})
    if _allowed(request):
        asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, ALLOWED_HEADERS)
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = ALLOWED_METHODS
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = asked
        response.headers[hdrs.ACCESS_CONTROL_MAX_AGE] = MAX_AGE
    return response


def check(request: web.Request) -> None:
    """Check the origin of a request: browsers send no preflight for forms and WebSockets.

    Raises:
        ApiError: 403: the page is of another site, and that is not on the list.
    """
    safe = request.method in _SAFE_METHODS and hdrs.UPGRADE not in request.headers
    if safe or _same_origin(request) or _allowed(request):
        return
    raise ApiError(403, "origin_not_allowed", "pages of this origin may not use this server; see gateway.cors_origins")


def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that let an allowed page read the reply."""
    allowed = request.app[SETTINGS].cors_origins
    if not allowed:
        return
    response.headers.add(hdrs.VARY, hdrs.ORIGIN)
    if _allowed(request):
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = request.headers[hdrs.ORIGIN]
        response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = EXPOSED


def _same_origin(request: web.Request) -> bool:
    """Return whether a request comes from a page of this server, or from no page.

    Browsers send ``Sec-Fetch-Site`` only to hosts that they trust (https and loopback); to others ``Origin`` decides.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("none", "same-origin")
    origin, host = request.headers.get(hdrs.ORIGIN), request.headers.get(hdrs.HOST, "")
    if origin is None:
        return True
    scheme, _, authority = origin.lower().partition("://")
    port = _PORTS.get(scheme)
    return port is not None and authority.removesuffix(port) == host.lower().removesuffix(port)


def _allowed(request: web.Request) -> bool:
    origin, allowed = request.headers.get(hdrs.ORIGIN), request.app[SETTINGS].cors_origins
    return origin is not None and (origin in allowed or "*" in allowed)
