"""What a key has used, and Fish's wallet, which holds nothing here: clients ask it whether their key is good."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from aiohttp import web

from gateway.access.accounts import Account
from gateway.access.auth import CLIENT
from gateway.http.errors import ApiError

CREDIT = "1000000"  # more than any client warns of; nothing is taken from it

NEVER = "9999-12-31T23:59:59+00:00"

routes = web.RouteTableDef()

_STARTED = time.time()


@routes.get("/v1/usage")
async def usage(request: web.Request) -> web.Response:
    client = request[CLIENT]
    if not isinstance(client, Account):
        raise ApiError(404, "no_keys", "usage is counted by API key, and this server has none")
    facts = {"key": client.name, "since": datetime.fromtimestamp(_STARTED, UTC).isoformat()}
    return web.json_response(facts | client.usage._asdict())


@routes.get("/wallet/self/api-credit")
async def credit(request: web.Request) -> web.Response:
    return web.json_response(_owner(request) | {"credit": CREDIT, "has_free_credit": True, "has_phone_sha256": False})


@routes.get("/wallet/self/package")
async def package(request: web.Request) -> web.Response:
    amounts = {"type": "self-hosted", "total": int(CREDIT), "balance": int(CREDIT), "finished_at": NEVER}
    return web.json_response(_owner(request) | amounts)


def _owner(request: web.Request) -> dict[str, str]:
    now = datetime.now(UTC).isoformat()
    name = request[CLIENT].name
    return {"_id": name, "user_id": name, "created_at": now, "updated_at": now}
