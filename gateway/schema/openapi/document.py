"""Builds the OpenAPI document for the routes and settings of a gateway."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from aiohttp import hdrs, web

from common.version import VERSION
from gateway.access.auth import COMPAT, LISTINGS, asks_for_key, guarded
from gateway.schema.openapi.operations import JSON, OPERATIONS, Answer, Operation, named
from gateway.schema.openapi.schemas import Schema, components
from gateway.services import Gateway

DESCRIPTION = """Speech of text, streamed as it is made.

Unknown fields of a body are ignored; a field that is null counts as absent. Everything below `/v1` is also there below
`/compat/v1`. Without keys configured, any key is accepted."""

_HEADERS = {
    "X-Request-Id": "That of the request, if it is 1 to 128 of A-Z a-z 0-9 . _ -, else a new one.",
    "X-Seed": "The same request with this seed gives the same codes.",
    "X-Sample-Rate": "Samples per second of the sound in the reply.",
    "X-Ignored-Fields": "Unknown fields of the request.",
    "X-Voice-Id": "That of the request, else the id of the voice that speaks; several have commas between them.",
    "X-Frames": "Frames of the sound, of a reply in one piece.",
    "X-Finish-Reason": "stop or length; a trailer of a streamed reply.",
    "Retry-After": "Seconds.",
}
_PROBLEMS = {
    400: "A field that can't be accepted: `error.param` names it.",
    401: "No key, or one that nobody has.",
    403: "Not allowed: a voice of the checkpoint, or a page of another origin.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "It exists already, there is no room, or a repeated request took over.",
    413: "The body is too large.",
    415: "Another content type is needed.",
    426: "A WebSocket is needed.",
    429: "Too many requests.",
    500: "The server failed.",
    501: "This server can't.",
    503: "Not ready, too busy, or shutting down.",
    507: "The disk of the server is full.",
}
_WITH_RETRY = (429, 503, 507)
_OF_BODIES = (400, 408, 413, 415)
_OF_COUNTED = (400, 409, 429)  # of the Idempotency-Key, and of limits of a key


def document(routes: Iterable[web.AbstractRoute], gateway: Gateway) -> dict[str, Any]:
    """Build the document of an application's routes.

    Raises:
        KeyError: a route that nobody has described.
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shoal", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": _paths(routes, gateway),
        "components": {
            "schemas": components(gateway.settings, gateway.model.context),
            "headers": {name: {"description": text, "schema": {"type": "string"}} for name, text in _HEADERS.items()},
            "responses": {str(status): _problem(status) for status in _PROBLEMS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths(routes: Iterable[web.AbstractRoute], gateway: Gateway) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = "" if route.resource is None else route.resource.canonical
        if route.method == hdrs.METH_HEAD or path.startswith(COMPAT):
            continue
        item = paths.setdefault(path, {})
        item[route.method.lower()] = _operation(route.method, path, gateway)
        if path.startswith("/v1/"):
            item["servers"] = [{"url": "/"}, {"url": COMPAT}]
    return paths


def _operation(method: str, path: str, gateway: Gateway) -> dict[str, Any]:
    operation = OPERATIONS[method, path]
    described: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": _parameters(path, operation),
        "responses": _responses(method, path, operation),
    }
    if operation.description:
        described["description"] = operation.description
    if operation.bodies:
        content = {media_type: {"schema": schema} for media_type, schema in operation.bodies.items()}
        described["requestBody"] = {"required": True, "content": content}
    if asks_for_key(path):
        described["security"] = _security(method, path, gateway)
    return described


def _parameters(path: str, operation: Operation) -> list[dict[str, Any]]:
    in_path = [_parameter("path", name, {"type": "string", "minLength": 1}) for name in re.findall(r"{(\w+)}", path)]
    in_query = [_parameter("query", name, schema) for name, schema in operation.query.items()]
    return in_path + in_query + [_parameter("header", name, schema) for name, schema in operation.headers.items()]


def _parameter(place: str, name: str, schema: Schema) -> dict[str, Any]:
    return {"in": place, "name": name, "required": place == "path", "schema": schema}


def _security(method: str, path: str, gateway: Gateway) -> list[dict[str, list[str]]]:
    listing = method == hdrs.METH_GET and path in LISTINGS and gateway.settings.open_listings
    open_to_all: list[dict[str, list[str]]] = [] if gateway.keys.required and not listing else [{}]
    return [{"key": []}, *open_to_all]


def _responses(method: str, path: str, operation: Operation) -> dict[str, Any]:
    statuses = set(operation.errors)
    if asks_for_key(path):
        statuses |= {401}
    if guarded(path):
        statuses |= {503}
    if method != hdrs.METH_GET:
        statuses |= {403, *(_OF_COUNTED if guarded(path) else ())}
    if operation.bodies:
        statuses |= set(_OF_BODIES)
    problems = {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}
    return {str(status): _answer(answer) for status, answer in operation.answers.items()} | problems


def _answer(answer: Answer) -> dict[str, Any]:
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in ("X-Request-Id", *answer.headers)}
    content = {media_type: {"schema": schema} for media_type, schema in answer.content.items()}
    return {"description": answer.description, "headers": headers} | ({"content": content} if content else {})


def _problem(status: int) -> dict[str, Any]:
    retry = ("Retry-After",) if status in _WITH_RETRY else ()
    return _answer(Answer(_PROBLEMS[status], {JSON: named("Error")}, retry))
