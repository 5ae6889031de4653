"""Health, readiness, version and metrics."""

from __future__ import annotations

import msgspec
from aiohttp import web

from common.version import VERSION
from gateway.http.replies import json_reply
from gateway.observe import merge
from gateway.schema import replies
from gateway.services import GATEWAY, Gateway

RETRY_AFTER = "2"
ALIVE = replies.Status("alive")

routes = web.RouteTableDef()


@routes.get("/v1/health")
@routes.post("/v1/health")
async def fish_health(request: web.Request) -> web.Response:
    return json_reply(replies.Status("ok"))


@routes.get("/health")
async def health(request: web.Request) -> web.Response:
    reasons = _unready(request.app[GATEWAY])
    return json_reply(replies.Health("ok", not reasons, reasons))


@routes.get("/healthz")
@routes.get("/livez")
async def alive(request: web.Request) -> web.Response:
    return json_reply(ALIVE)


@routes.get("/readyz")
async def ready(request: web.Request) -> web.Response:
    reasons = _unready(request.app[GATEWAY])
    if not reasons:
        return json_reply(replies.Status("ready"))
    return json_reply(replies.NotReady("not ready", reasons), 503, {"Retry-After": RETRY_AFTER})


@routes.get("/version")
async def version(request: web.Request) -> web.Response:
    model = request.app[GATEWAY].model
    return json_reply(replies.Version("shoal", VERSION, model.name, model.sample_rate))


@routes.get("/metrics")
async def metrics(request: web.Request) -> web.Response:
    text = await request.app[GATEWAY].scrapes.text()
    return web.Response(body=text.encode(), headers={"Content-Type": merge.CONTENT_TYPE})


def probe(gateway: Gateway, path: str) -> tuple[int, bytes] | None:
    """Answer a health check outside the application: status and JSON body; None for any other path."""
    if path in ("/livez", "/healthz"):
        return 200, msgspec.json.encode(ALIVE)
    if path != "/readyz":
        return None
    reasons = _unready(gateway)
    reply = replies.NotReady("not ready", reasons) if reasons else replies.Status("ready")
    return 503 if reasons else 200, msgspec.json.encode(reply)


def _unready(gateway: Gateway) -> dict[str, str]:
    reasons = gateway.engine.unready()
    return reasons | {"gateway": "draining"} if gateway.draining else reasons
