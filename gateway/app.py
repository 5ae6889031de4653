"""The web application: its routes, and what holds for all of them."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from gateway.doors import codes, health, references, tts
from gateway.errors import ApiError, from_http
from gateway.outlet import STARTED, break_off
from gateway.services import ARRIVAL, GATEWAY, REQUEST_ID, Gateway
from gateway.session import SlowClientError

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

CLIENT_GONE = "499"  # in metrics and logs only
_SANE_ID = re.compile(r"[A-Za-z0-9._\-]{1,128}")
_ALWAYS_SERVED = "/v1/health"


def make_app(gateway: Gateway) -> web.Application:
    app = web.Application(middlewares=[_answer, _admit], client_max_size=gateway.settings.max_body_bytes)
    app[GATEWAY] = gateway
    for door in (tts, codes, references, health):
        app.add_routes(door.routes)
    app.on_response_prepare.append(_add_headers)
    return app


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    request[STARTED] = response
    response.headers["X-Request-Id"] = request[REQUEST_ID]
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    if request.app[GATEWAY].draining:
        response.force_close()
        response.headers["Connection"] = "close"


@web.middleware
async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Names the request, turns whatever goes wrong into a reply or a broken connection, and counts the reply."""
    request[ARRIVAL] = asyncio.get_running_loop().time()
    given = request.headers.get("X-Request-Id", "")
    request[REQUEST_ID] = given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex
    code = CLIENT_GONE
    try:
        response = await _guarded(request, handler)
        code = str(response.status)
        return response
    finally:
        _count(request, code)


async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Exception as error:
        started = request.get(STARTED)
        failure = _as_api_error(error)
        if started is None:
            return failure.response()
        log.warning("broke off a reply", extra={"request_id": request[REQUEST_ID], "cause": repr(error)})
        break_off(request, started)
        return started


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
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
    """Counts the requests a drain has to wait for, and refuses new ones while it lasts."""
    gateway, route = request.app[GATEWAY], _route(request)
    if not route.startswith("/v1/") or route == _ALWAYS_SERVED:
        return await handler(request)
    if gateway.draining:
        raise ApiError(503, "draining", "the server is shutting down", retry_after=5, reason="rejected")
    with gateway.under_way():
        return await handler(request)


def _route(request: web.Request) -> str:
    """The pattern of the route, never the path a client chose."""
    resource = request.match_info.route.resource
    return "unmatched" if resource is None else resource.canonical


def _count(request: web.Request, code: str) -> None:
    route = _route(request)
    method = request.method if request.method in _METHODS else "other"
    request.app[GATEWAY].metrics.http_requests.labels(route, method, code).inc()
    seconds = round(asyncio.get_running_loop().time() - request[ARRIVAL], 4)
    level = logging.INFO if route.startswith("/v1/") else logging.DEBUG
    facts = {"request_id": request[REQUEST_ID], "route": route, "method": method, "code": code, "seconds": seconds}
    log.log(level, "answered", extra=facts)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
