"""``GET /openapi.json``: the OpenAPI document."""

from __future__ import annotations

from aiohttp import web

DOCUMENT: web.AppKey[bytes] = web.AppKey("document", bytes)
"""The description, made when the application is."""

routes = web.RouteTableDef()


@routes.get("/openapi.json")
async def description(request: web.Request) -> web.Response:
    return web.Response(body=request.app[DOCUMENT], content_type="application/json")
