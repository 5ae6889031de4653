"""Authentication: checks a request's API key and exempts public routes."""

from __future__ import annotations

from aiohttp import web

from gateway.access.accounts import Client
from gateway.access.api_keys import Keys
from gateway.http.errors import ApiError
from gateway.http.settings import SETTINGS

COMPAT = "/compat"  # the same routes again, under the prefix Fish's cloud has for OpenAI's clients

GUARDED = ("/v1/", "/model", "/wallet/")
DEBUG = "/debug/"  # tells of other clients' requests, also while a drain lasts
OPEN = frozenset({"/v1/health", "/v1/test"})
LISTINGS = frozenset({"/v1/models", "/v1/models/{id}", "/v1/audio/models", "/v1/audio/voices"})

KEYS: web.AppKey[Keys] = web.AppKey("keys", Keys)

CLIENT: web.RequestKey[Client] = web.RequestKey("client", Client)
"""The sender of a request; set for the routes that ask for a key."""


def route_of(request: web.Request) -> str:
    """Return the pattern of the route, never the path that a client chose."""
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical


def guarded(route: str) -> bool:
    """Return whether a route, given by its pattern, does work: it asks for a key, and a drain waits for it."""
    route = route.removeprefix(COMPAT)
    return route.startswith(GUARDED) and route not in OPEN


def asks_for_key(route: str) -> bool:
    """Return whether a route, given by its pattern, asks for a key where keys are configured."""
    return guarded(route) or route.startswith(DEBUG)


def authenticate(request: web.Request) -> Client:
    """Return the sender of a request. Without configured keys, any key is accepted.

    Raises:
        ApiError: 401: no key, or an unknown one.
    """
    keys = request.app[KEYS]
    peer = Client(request.remote or "")
    if not keys.required:
        return peer
    key = _key(request)
    account = keys.find(key) if key else None
    if account is not None:
        return account
    listing = request.method == "GET" and route_of(request).removeprefix(COMPAT) in LISTINGS
    if listing and request.app[SETTINGS].open_listings:
        return peer
    problem = "is not a key of this server" if key else "is required: Authorization: Bearer KEY"
    raise ApiError(401, "invalid_api_key", f"API key: {problem}", headers={"WWW-Authenticate": "Bearer"})


def is_upgrade(request: web.Request) -> bool:
    """Return whether a request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def _key(request: web.Request) -> str:
    """Return the key of the Authorization header, or of the query of a WebSocket, where browsers can't set headers."""
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return request.query.get("api_key", "") if is_upgrade(request) else ""
