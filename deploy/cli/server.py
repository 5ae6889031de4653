"""Client of a server: address, key and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import click
from click.core import ParameterSource

DEFAULT_ADDRESS = "http://127.0.0.1:8080"
CONNECT_SECONDS = 10.0
KEY_HINT = " (give a key with --api-key or SHOAL_API_KEY)"

F = TypeVar("F", bound=Callable[..., Any])


class ServerError(click.ClickException):
    """The server refused, failed or is unreachable; shown without a traceback."""


class Server:
    """Address of a server and its API key (or ""), for one command."""

    def __init__(self, address: str, key: str) -> None:
        address = address.rstrip("/")
        self.address = address if "://" in address else f"http://{address}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def session(self, connections: int = 0) -> aiohttp.ClientSession:
        """Open a session without a limit on reply length; at most ``connections`` at once, 0: any number."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(limit=connections)
        return aiohttp.ClientSession(headers=self._headers, timeout=timeout, connector=connector)

    @asynccontextmanager
    async def request(self, method: str, path: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """Context of one accepted request.

        Raises:
            ServerError: the server is not there, refused, or broke off its reply.
        """
        try:
            async with self.session() as session, session.request(method, self.address + path, **options) as reply:
                if reply.status >= 400:
                    hint = KEY_HINT if reply.status == 401 else ""
                    raise ServerError(f"{reply.status}: {words(await reply.read(), reply.reason)}{hint}")
                yield reply
        except aiohttp.ClientConnectorError as error:
            message = f"no server answers at {self.address} ({error.os_error}). Start one with: shoal serve"
            raise ServerError(message) from None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ServerError(f"the server broke off its reply: {error or type(error).__name__}") from None


def words(body: bytes, reason: str | None) -> str:
    """Extract the message of an error body of Fish's, OpenAI's or FastAPI's servers."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        error = fields.get("error")
        nested = error.get("message") if isinstance(error, dict) else error
        for message in (nested, fields.get("message"), fields.get("detail")):
            if message:
                return str(message)
    return body.decode(errors="replace").strip()[:200] or reason or "no reason given"


class GroupOption(click.Option):
    """Option that may also be given before the subcommand; the value nearest to the subcommand takes precedence."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        given = (ctx.find_root().obj or {}).get(self.name)
        if source is ParameterSource.COMMANDLINE or given is None:
            return value, source
        return given, ParameterSource.COMMANDLINE


def server_options(command: F) -> F:
    """Add --server and --api-key, which a command gets as ``address`` and ``api_key``."""
    command = click.option(
        "--api-key",
        cls=GroupOption,
        envvar="SHOAL_API_KEY",
        default="",
        show_envvar=True,
        help="Key, if the server asks for one.",
    )(command)
    return click.option(
        "--server",
        "address",
        cls=GroupOption,
        envvar="SHOAL_SERVER",
        default=DEFAULT_ADDRESS,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Address of the server.",
    )(command)
