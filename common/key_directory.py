"""Key directory of an encrypted group: the identities of its processes on the network.

Each process has a CURVE key pair under its name: ``NAME.key`` is its public certificate, ``NAME.key_secret`` holds the
secret key too. A process reads its own secret file and the public ones of all it talks to; it accepts connections of
those processes, and of no others, whose public certificate lies in its directory. What is added or removed there holds
from the next connection on.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import zmq
import zmq.auth
from zmq.utils import z85

from common.config import ConfigError

PUBLIC, SECRET = ".key", ".key_secret"
MAX_KEYS = 1024  # public certificates that are read
READABLE_BY_ALL = 0o007
Z85_LENGTH = 40  # characters of a key

_NAME = re.compile(r"[A-Za-z0-9_\-]{1,64}")

log = logging.getLogger(__name__)


class CurveKeys:
    """CURVE keys of one process, and the public keys of the others.

    Raises ConfigError: the directory has no key for ``name``, or one that others may read.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.name = name
        path = directory / f"{name}{SECRET}"
        self.public, secret = _read(path)
        if secret is None:
            raise ConfigError(f"transport.keys: {path} holds no secret key")
        if path.stat().st_mode & READABLE_BY_ALL:
            raise ConfigError(f"transport.keys: every user may read {path}; its mode should be 0600")
        self.secret: bytes = secret

    def public_key(self, name: str) -> bytes:
        """The public key, in Z85, of the process of this name.

        Raises:
            ConfigError: it is not in the directory.
        """
        return _read(self._directory / f"{name}{PUBLIC}")[0]

    def owner(self, public: bytes) -> str | None:
        """The name of the process with this public key, 32 bytes; None: it is not known here."""
        wanted = z85.encode(public)
        for path in sorted(self._directory.glob(f"*{PUBLIC}"))[:MAX_KEYS]:
            try:
                if _read(path)[0] == wanted:
                    return path.name.removesuffix(PUBLIC)
            except ConfigError as error:
                log.warning("passed over a key: %s", error)
        return None


def create(directory: Path, name: str) -> None:
    """Create a key pair that only its owner may read.

    Raises:
        ConfigError: ``name`` is no name for a process, or there is such a pair already.
        OSError: the directory can't be written.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} is not 1 to 64 letters, digits, - and _")
    if any((directory / f"{name}{suffix}").exists() for suffix in (PUBLIC, SECRET)):
        raise ConfigError(f"{directory}: there is a key for {name!r} already")
    former = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        zmq.auth.create_certificates(directory, name)
    finally:
        os.umask(former)


def _read(path: Path) -> tuple[bytes, bytes | None]:
    """Public and secret key of a certificate, in Z85."""
    if not path.exists():
        raise ConfigError(f"transport.keys: {path.parent} has no {path.name} (shoal keys create makes it)")
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"transport.keys: {path}: {error}") from None
    if any(len(key) != Z85_LENGTH for key in (public, secret) if key is not None):
        raise ConfigError(f"transport.keys: {path}: a key is not {Z85_LENGTH} characters long")
    return public, secret
