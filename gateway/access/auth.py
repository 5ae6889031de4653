"""Who may come in: the key of a request, and the routes that need none."""

from __future__ import annotations

from aiohttp import web

from gateway.access.accounts import Client
from gateway.http.errors import ApiError
from gateway.services import GATEWAY

COMPAT = "/compat"  # the same routes again, under the prefix Fish's cloud has for OpenAI's clients

GUARDED = ("/v1/", "/model", "/wallet/")
DEBUG = "/debug/"  # tells of other clients' requests, also while a drain lasts
OPEN = frozenset({"/v1/health", "/v1/test"})
LISTINGS = frozenset({"/v1/models", "/v1/models/{id}", "/v1/audio/models", "/v1/audio/voices"})

CLIENT: web.RequestKey[Client] = web.RequestKey("client", Client)
"""Who sent a request; set for the routes that ask for a key."""


def route_of(request: web.Request) -> str:
    """The pattern of the route, never the path a client chose."""
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical


def guarded(route: str) -> bool:
    """Whether a route, given by its pattern, does work: it asks for a key, and a drain waits for it."""
    route = route.removeprefix(COMPAT)
    return route.startswith(GUARDED) and route not in OPEN


def asks_for_key(route: str) -> bool:
    """Whether a route, given by its pattern, asks for a key where there are keys."""
    return guarded(route) or route.startswith(DEBUG)


def authenticate(request: web.Request) -> Client:
    """Who sends this request. Without keys, whatever a client sends as its key is accepted.

    Raises:
        ApiError: 401: no key, or one that nobody has.
    """
    gateway = request.app[GATEWAY]
    peer = Client(request.remote or "")
    if not gateway.keys.required:
        return peer
    key = _key(request)
    account = gateway.keys.find(key) if key else None
    if account is not None:
        return account
    listing = request.method == "GET" and route_of(request).removeprefix(COMPAT) in LISTINGS
    if listing and gateway.settings.open_listings:
        return peer
    problem = "is not a key of this server" if key else "is required: Authorization: Bearer KEY"
    raise ApiError(401, "invalid_api_key", f"API key: {problem}", headers={"WWW-Authenticate": "Bearer"})


def is_upgrade(request: web.Request) -> bool:
    """Whether a WebSocket is asked for."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def _key(request: web.Request) -> str:
    """Of the Authorization header. Browsers can't set it when they open a WebSocket: there the query may have it."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return request.query.get("api_key", "") if is_upgrade(request) else ""
