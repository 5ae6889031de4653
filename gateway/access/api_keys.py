"""API keys: loaded from a TOML file and the environment, compared in constant time, reloaded when the file changes.

The file has one table per key:

    [[key]]
    name = "anna"              # in metrics and logs
    key = "a long secret"      # or sha256 = "its SHA-256 in hexadecimal digits"
    concurrency = 8            # requests under way; 0 or absent: no bound
    requests_per_minute = 120  # 0 or absent: no bound
    expires = 2027-01-31       # the first day, or an offset date-time, at which it no longer works; absent: never
    scopes = ["speak"]         # "speak", "voices" and "admin"; absent: the first two
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import stat
import time
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from common.config import ConfigError
from gateway.access.accounts import Account, Limits, Scope
from gateway.observe.metrics import GatewayMetrics

log = logging.getLogger(__name__)

ENVIRONMENT = "SHOAL_API_KEYS"
CHECK_SECONDS = 1.0
OTHERS = stat.S_IWGRP | stat.S_IRWXO  # permissions that a keys file should not give; a group may read it

T = TypeVar("T")
Stamp: TypeAlias = tuple[int, int, int]


class _Key(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.\-]{1,64}\Z")]
    key: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None = None
    concurrency: Annotated[int, Meta(ge=0)] = 0
    requests_per_minute: Annotated[float, Meta(ge=0)] = 0.0
    expires: Any = None  # a date or a date-time; msgspec can't tell these apart
    scopes: frozenset[Scope] = frozenset({"speak", "voices"})


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    key: Annotated[list[_Key], Meta(max_length=1000)] = []


class _Entry(NamedTuple):
    digest: bytes
    account: Account
    expires: float  # in seconds since 1970


class Keys:
    """API keys known to this gateway."""

    def __init__(self, file: Path | None, environment: str, metrics: GatewayMetrics) -> None:
        """Load the keys. ``environment``: comma-separated ``name=key`` pairs.

        Raises:
            ConfigError: naming the file or variable, and what is wrong with it.
        """
        self._file, self._metrics = file, metrics
        self._fixed = _from_environment(environment)
        self._accounts: dict[str, Account] = {}
        self._stamp: Stamp | None = None if file is None else _stamp(file)
        self._entries = self._build([] if file is None else _from_file(file))
        self._checked = time.monotonic()

    @property
    def required(self) -> bool:
        """Whether a key is required. A file without keys locks everybody out."""
        return self._file is not None or bool(self._fixed)

    def find(self, key: str) -> Account | None:
        """Return the account of a key, in the same time for a wrong key as for a right one."""
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).digest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest) and time.time() < entry.expires:
                found = entry.account
        return found

    async def refresh(self) -> None:
        """Reload the file if it has changed, checking at most once a second. An invalid file changes nothing."""
        now = time.monotonic()
        if self._file is None or now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        try:
            stamp = await asyncio.to_thread(_stamp, self._file)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._entries = self._build(await asyncio.to_thread(_from_file, self._file))
            log.info("read the keys again", extra={"keys": len(self._entries)})
        except ConfigError as error:
            log.error("kept the former keys: %s", error)

    def _build(self, keys: list[_Key]) -> list[_Entry]:
        keys = self._fixed + keys
        if len({key.name for key in keys}) < len(keys):
            raise ConfigError(f"{self._file or ENVIRONMENT}: two keys have the same name")
        return [_Entry(_digest(key), self._account(key), _expiry(key)) for key in keys]

    def _account(self, key: _Key) -> Account:
        limits = Limits(key.concurrency, key.requests_per_minute)
        account = self._accounts.get(key.name)
        if account is None:
            account = self._accounts[key.name] = Account(key.name, limits, key.scopes, self._metrics)
        account.limits, account.scopes = limits, key.scopes
        return account


def _from_environment(value: str) -> list[_Key]:
    keys = []
    for pair in filter(None, (part.strip() for part in value.split(","))):
        name, equals, key = pair.partition("=")
        if not equals:
            raise ConfigError(f"{ENVIRONMENT}: not name=key pairs with commas between them")
        keys.append(_checked({"name": name.strip(), "key": key.strip()}, _Key, ENVIRONMENT))
    return keys


def _from_file(file: Path) -> list[_Key]:
    if file.exists() and file.stat().st_mode & OTHERS:
        log.warning("others may read or change the keys: chmod 600 %s", file)
    try:
        values = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from None
    keys = _checked(values, _File, str(file)).key
    for key in keys:
        if (key.key is None) == (key.sha256 is None):
            raise ConfigError(f"{file}: key {key.name!r} needs either key or sha256")
    return keys


def _checked(values: object, kind: type[T], place: str) -> T:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}") from None


def _digest(key: _Key) -> bytes:
    return bytes.fromhex(key.sha256) if key.sha256 else hashlib.sha256((key.key or "").encode()).digest()


def _expiry(key: _Key) -> float:
    """Return when a key stops working, in seconds since 1970. Times without an offset are UTC."""
    if key.expires is None:
        return math.inf
    if not isinstance(key.expires, date):
        raise ConfigError(f"key {key.name!r}: expires is not a date or a date-time")
    at = key.expires if isinstance(key.expires, datetime) else datetime.combine(key.expires, datetime.min.time())
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _stamp(file: Path) -> Stamp:
    try:
        status = file.stat()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    return status.st_mtime_ns, status.st_size, status.st_ino
