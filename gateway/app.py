"""The web application: routes, and the middlewares that apply to all of them."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import msgspec
from aiohttp import web

from common import logs
from gateway.access import auth
from gateway.api import (
    account,
    codes,
    debug,
    description,
    elevenlabs,
    health,
    live,
    openai,
    page,
    references,
    tts,
    voices,
    vqgan,
)
from gateway.errors import RequestError, SlowClientError
from gateway.http import cors, hosts, idempotency, protocol_errors, voice_header
from gateway.http.buffers import BODY, Holding
from gateway.http.errors import ApiError, as_api_error, draining, from_http, no_route, wrong_method
from gateway.http.response_stream import STARTED, break_off
from gateway.http.settings import SETTINGS
from gateway.observe import trace_context
from gateway.schema import openapi
from gateway.services import ARRIVAL, GATEWAY, LOGGED, REQUEST_ID, TRACE, Gateway

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

MOST_OF_PATH = 200  # characters in an error message
CLIENT_GONE = "499"  # in metrics and logs only
_SANE_ID = re.compile(r"[A-Za-z0-9._\-]{1,128}")
_COUNTED_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})  # against the limits of a key


def make_app(gateway: Gateway) -> web.Application:
    app = web.Application(middlewares=[_answer, _admit], client_max_size=gateway.settings.max_body_bytes)
    app[GATEWAY], app[SETTINGS], app[auth.KEYS] = gateway, gateway.settings, gateway.keys
    speaking, of_clients = (tts, live, openai, elevenlabs, codes, vqgan), (references, voices, account)
    for endpoints in (*speaking, *of_clients, debug, health, page, description):
        app.add_routes(_expecting(endpoints.routes))
        app.add_routes(_expecting(_compatible(endpoints.routes)))
    app[description.DOCUMENT] = msgspec.json.encode(openapi.document(app.router.routes(), gateway))
    app.on_response_prepare.append(_add_headers)
    app.on_shutdown.append(_close_sockets)
    return app


def make_operators_app(gateway: Gateway) -> web.Application:
    """Build the application of the operators' listener, which asks for no API key."""
    app = web.Application(middlewares=[_answer], client_max_size=gateway.settings.max_body_bytes)
    app[GATEWAY], app[SETTINGS] = gateway, gateway.settings
    for endpoints in (health, debug):
        app.add_routes(_expecting(endpoints.routes))
    app.on_response_prepare.append(_add_headers)
    return app


def _compatible(routes: web.RouteTableDef) -> list[web.RouteDef]:
    """Repeat the routes below /v1 under the prefix that Fish's cloud has for OpenAI's clients."""
    return [
        web.RouteDef(route.method, auth.COMPAT + route.path, route.handler, route.kwargs)
        for route in routes
        if isinstance(route, web.RouteDef) and route.path.startswith("/v1/")
    ]


def _expecting(routes: Iterable[web.AbstractRouteDef]) -> list[web.AbstractRouteDef]:
    """Return the routes with our handling of the Expect header."""
    for route in routes:
        if isinstance(route, web.RouteDef):
            route.kwargs["expect_handler"] = protocol_errors.expect
    return list(routes)


async def _close_sockets(app: web.Application) -> None:
    """Close WebSockets that outlast a drain; the web server itself would leave them open."""
    await asyncio.gather(*(socket.cut_off() for socket in list(app[GATEWAY].sockets)))


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    request[STARTED] = response
    if REQUEST_ID not in request:  # the HTTP library refused it before any handler was called
        request[REQUEST_ID] = _request_id(request)
    response.headers["X-Request-Id"] = request[REQUEST_ID]
    response.headers.update(voice_header.sent(request))
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Accel-Buffering"] = "no"
    cors.add_headers(request, response)
    if request.app[GATEWAY].draining:
        response.force_close()
        response.headers["Connection"] = "close"


@web.middleware
async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Assigns a request id, turns errors into replies or broken connections, and counts the reply."""
    request[ARRIVAL] = asyncio.get_running_loop().time()
    request[REQUEST_ID] = _request_id(request)
    request[TRACE] = trace_context.of_header(request.headers.get("traceparent", ""))
    logs.bind(request_id=request[REQUEST_ID], trace_id=request[TRACE].trace_id)
    code = CLIENT_GONE
    try:
        response = cors.preflight(request) or await _guarded(request, handler)
        code = str(response.status)
        return response
    finally:
        _count(request, code)


def _request_id(request: web.Request) -> str:
    given = request.headers.get("X-Request-Id", "")
    return given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex


async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        protocol_errors.check(request)
        hosts.check(request)
        cors.check(request)
        return await handler(request)
    except Exception as error:
        started = request.get(STARTED)
        failure = _as_api_error(error, request)
        if started is None:
            return failure.response()
        log.warning("broke off a reply", extra={"cause": repr(error)})
        break_off(request, started)
        return started


def _as_api_error(error: Exception, request: web.Request) -> ApiError:
    if isinstance(error, RequestError):
        return as_api_error(error)
    path = request.path[:MOST_OF_PATH]
    if isinstance(error, web.HTTPNotFound):
        return no_route(request.method, path)
    if isinstance(error, web.HTTPMethodNotAllowed):
        return wrong_method(request.method, path, ", ".join(sorted(error.allowed_methods - {"HEAD"})))
    if isinstance(error, web.HTTPException):
        return from_http(error)
    if isinstance(error, web.RequestPayloadError):
        message = "the body does not fit its Content-Encoding or Transfer-Encoding"
        return ApiError(400, "bad_request", message, headers={"Connection": "close"})
    if not isinstance(error, SlowClientError | ConnectionError):
        log.error("a request failed", exc_info=error)
    return ApiError(500, "internal_error", "internal error")


@web.middleware
async def _admit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Authenticates, applies limits, and refuses new requests while draining."""
    gateway = request.app[GATEWAY]
    route = auth.route_of(request)
    if not auth.asks_for_key(route):
        return await handler(request)
    await gateway.keys.refresh()
    client = request[auth.CLIENT] = auth.authenticate(request)
    if not auth.guarded(route):
        return await handler(request)
    if gateway.refusing:
        raise draining()
    with gateway.under_way(), Holding(gateway.memory) as request[BODY]:
        if request.method not in _COUNTED_METHODS:  # nor are WebSockets, whose sessions count one by one
            return await handler(request)
        async with gateway.idempotency.newest(client.name, request.headers.get(idempotency.HEADER)):
            with client.admitted():
                return await handler(request)


def _count(request: web.Request, code: str) -> None:
    route = auth.route_of(request)
    method = request.method if request.method in _METHODS else "other"
    request.app[GATEWAY].metrics.http_requests.labels(route, method, code).inc()
    seconds = round(asyncio.get_running_loop().time() - request[ARRIVAL], 4)
    worth_it = auth.guarded(route) and LOGGED not in request
    level = logging.INFO if worth_it else logging.DEBUG
    facts = {"route": route, "method": method, "code": code, "seconds": seconds}
    log.log(level, "answered", extra=facts)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
