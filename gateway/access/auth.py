"""Authentication: checks a request's API key and exempts public routes."""

from __future__ import annotations

from aiohttp import web

from gateway.access.accounts import ALL_SCOPES, Client, Scope
from gateway.access.api_keys import Keys
from gateway.http.errors import ApiError
from gateway.http.proxies import client_address
from gateway.http.settings import SETTINGS

COMPAT = "/compat"  # the same routes again, under the prefix Fish's cloud has for OpenAI's clients

GUARDED = ("/v1/", "/model", "/wallet/")
OPERATORS = ("/debug/", "/metrics")  # show other clients' requests and keys, also during a drain
OPEN = frozenset({"/v1/health", "/v1/test"})
LISTINGS = frozenset({"/v1/models", "/v1/models/{id}", "/v1/audio/models", "/v1/audio/voices", "/v1/voices"})

ELEVENLABS_KEY = "xi-api-key"  # their clients' header
_SPEAK = ("/v1/tts", "/v1/audio/speech", "/v1/text-to-speech/", "/v1/codes", "/v1/vqgan/", "/v1/asr")
_VOICES = ("/model", "/v1/references/", "/v1/audio/voices")
_READING = ("GET", "HEAD")

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
    return guarded(route) or route.startswith(OPERATORS)


def scopes_for(method: str, route: str) -> frozenset[Scope]:
    """Return the scopes of which a key needs one for a route, given by its pattern; empty: any key will do."""
    route = route.removeprefix(COMPAT)
    if route.startswith(OPERATORS):
        return frozenset({"admin"})
    if route.startswith(_SPEAK):
        return frozenset({"speak"})
    changes_voices = route.startswith(_VOICES) and method not in _READING
    return frozenset({"voices", "admin"}) if changes_voices else frozenset()


def authenticate(request: web.Request) -> Client:
    """Return the sender of a request. Without configured keys, any key is accepted.

    Raises:
        ApiError: 401: no key, or an unknown one; 403: a key without the scope.
    """
    keys = request.app[KEYS]
    if not keys.required:
        return Client(client_address(request), ALL_SCOPES)
    key = _key(request)
    account = keys.find(key) if key else None
    if account is not None:
        _check_scope(account, scopes_for(request.method, route_of(request)))
        return account
    listing = request.method == "GET" and route_of(request).removeprefix(COMPAT) in LISTINGS
    if listing and request.app[SETTINGS].open_listings:
        return Client(client_address(request), frozenset())
    problem = "is not a key of this server" if key else "is required: Authorization: Bearer KEY"
    raise ApiError(401, "invalid_api_key", f"API key: {problem}", headers={"WWW-Authenticate": "Bearer"})


def _check_scope(client: Client, scopes: frozenset[Scope]) -> None:
    if scopes and not scopes & client.scopes:
        message = f"API key: lacks the scope {' or '.join(sorted(scopes))}"
        raise ApiError(403, "insufficient_scope", message)


def is_upgrade(request: web.Request) -> bool:
    """Return whether a request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def _key(request: web.Request) -> str:
    """Return the key of the Authorization header, or of that of ElevenLabs' clients.

    Browsers can't set the headers of a WebSocket: there the query may have the key.
    """
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    if key := request.headers.get(ELEVENLABS_KEY, "").strip():
        return key
    return request.query.get("api_key", "") if is_upgrade(request) else ""
