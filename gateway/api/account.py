"""Usage of a key, and stubs of Fish's wallet, by which clients check their key."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from aiohttp import web

from gateway.access.accounts import Account
from gateway.access.auth import CLIENT
from gateway.http.errors import ApiError
from gateway.http.replies import json_reply
from gateway.schema import replies

CREDIT = "1000000"  # more than any client warns of; nothing is taken from it

NEVER = "9999-12-31T23:59:59+00:00"

routes = web.RouteTableDef()

_STARTED = time.time()


@routes.get("/v1/usage")
async def usage(request: web.Request) -> web.Response:
    client = request[CLIENT]
    if not isinstance(client, Account):
        raise ApiError(404, "no_keys", "usage is counted by API key, and this server has none")
    since = datetime.fromtimestamp(_STARTED, UTC).isoformat()
    return json_reply(replies.Usage(client.name, since, **client.usage._asdict()))


@routes.get("/wallet/self/api-credit")
async def credit(request: web.Request) -> web.Response:
    return json_reply(replies.Credit(*_owner(request), credit=CREDIT, has_free_credit=True, has_phone_sha256=False))


@routes.get("/wallet/self/package")
async def package(request: web.Request) -> web.Response:
    amount = int(CREDIT)
    return json_reply(replies.Package(*_owner(request), "self-hosted", amount, amount, NEVER))


def _owner(request: web.Request) -> tuple[str, str, str, str]:
    """Id of the stub, user, and the times of its creation and last change."""
    now, name = datetime.now(UTC).isoformat(), request[CLIENT].name
    return name, name, now, now
