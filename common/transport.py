"""Sockets between the processes: endpoints, options and closing order.

Topology: the scheduler binds one ROUTER, to which gateways and workers connect a DEALER. Each vocoder worker binds a
second ROUTER for sound, to which gateways connect a DEALER. A ROUTER is mandatory: sending to a peer that has gone is
:class:`PeerGoneError` at once, not a queue. A DEALER's identity is the incarnation of its process.

With keys (``transport.keys``), what goes over tcp is encrypted by CURVE, and a ROUTER accepts known peers only. Sockets
in the run directory need neither.

Options: high-water marks are a backstop that credit keeps out of reach. LINGER lets the last words of an orderly end
(drain, shutdown) leave, and no longer. Close order: sockets and monitors, then the context (:meth:`Context.close`).
"""

from __future__ import annotations

import functools
import logging
import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from common.addresses import is_loopback
from common.config import ROOT, Config, ConfigError
from common.key_directory import CurveKeys
from common.logs import Throttle
from common.zap import DOMAIN, KeyCheck

HIGH_WATER_MARK = 16_384  # messages per peer
LINGER_MS = 500
MAX_MESSAGE_BYTES = 256 * 1024 * 1024
HEARTBEAT_MS = 1000
RECONNECT_MS = 50
MAX_RECONNECT_MS = 500
HANDSHAKE_MS = 2000  # of encrypted connections; also the pause after which a refused one tries again
MAX_IPC_PATH = 103  # bytes: the smallest limit of all systems (macOS)
TCP = "tcp://"
SCHEDULER = "scheduler"

CONNECTED = zmq.EVENT_HANDSHAKE_SUCCEEDED
DISCONNECTED = zmq.EVENT_DISCONNECTED
HANDSHAKE_FAILED = (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
KEY_REFUSED = "its key is not the one we have, or ours is not known there"
MISMATCH = "one side encrypts, the other does not"
HANGS_UP = f"it hangs up during the handshake; perhaps {MISMATCH}"
MAX_HANG_UPS = 3  # in a row, of a connection without encryption; fewer may be a process that starts or ends

log = logging.getLogger(__name__)


class PeerGoneError(Exception):
    """The peer of a message is not connected, or its queue is full."""


def new_incarnation() -> str:
    """Create an id for one life of a process."""
    return os.urandom(8).hex()


def ipc_endpoint(run_dir: Path, name: str) -> str:
    """An endpoint in the run directory.

    Raises:
        ValueError: the path is too long for a Unix socket.
    """
    path = str((run_dir / f"{name}.sock").resolve())
    if len(path.encode()) > MAX_IPC_PATH:
        raise ValueError(f"run directory: {path} is longer than the {MAX_IPC_PATH} bytes a socket path may have")
    return f"ipc://{path}"


def scheduler_endpoint(config: Config) -> str:
    """Endpoint at which the scheduler listens and all others connect."""
    return config.transport.scheduler or ipc_endpoint(config.run_path, "scheduler")


def audio_endpoint(config: Config, name: str) -> str:
    """Endpoint at which the vocoder worker of this name listens for gateways; with tcp, at any free port."""
    host = config.transport.audio_host
    return f"tcp://{host}:*" if host else ipc_endpoint(config.run_path, f"{name}.audio")


def load_curve_keys(config: Config, name: str) -> CurveKeys | None:
    """Load the keys of the process of this name; None if the group is not encrypted.

    Raises:
        ConfigError: a file that can't be used, or a setting by which data would leave this machine unencrypted.
    """
    _check_hosts(config)
    if not config.transport.keys:
        return None
    keys = CurveKeys((ROOT / config.transport.keys).resolve(), name)
    keys.public_key(SCHEDULER)
    return keys


def _check_hosts(config: Config) -> None:
    scheduler = config.transport.scheduler.removeprefix(TCP).rpartition(":")[0]
    for name, host in (("transport.scheduler", scheduler), ("transport.audio_host", config.transport.audio_host)):
        if host and not config.transport.keys and not is_loopback(host):
            raise ConfigError(f"{name}: {host} is reached over the network: transport.keys must name a key directory")


class Monitor:
    """Reports the connections and losses of one DEALER, and logs why a handshake fails."""

    def __init__(self, dealer: zmq.Socket[bytes], server: str, endpoint: str) -> None:
        events = CONNECTED | DISCONNECTED | functools.reduce(operator.or_, HANDSHAKE_FAILED)
        self.socket: zmq.Socket[bytes] = dealer.get_monitor_socket(events)
        self._dealer, self._server, self._endpoint = dealer, server, endpoint
        self.given_up = False  # ZeroMQ does not try again after a mismatch; :meth:`reconnect` does
        self._encrypted = dealer.getsockopt(zmq.MECHANISM) == zmq.CURVE
        self._hang_ups = 0  # during handshakes, since the last success
        self._failures = Throttle()

    def events(self) -> list[int]:
        """The events since the last call: CONNECTED and DISCONNECTED, in order."""
        events: list[int] = []
        while True:
            try:
                event = int(parse_monitor_message(self.socket.recv_multipart(zmq.NOBLOCK))["event"])
            except zmq.Again:
                return events
            if event in HANDSHAKE_FAILED:
                self._on_failed_handshake(event)
                continue
            if event == CONNECTED:
                self._hang_ups = 0
            events.append(event)

    def _on_failed_handshake(self, event: int) -> None:
        """Log why a handshake failed. The side that notices a mismatch hangs up, and the other may see only that."""
        reason = MISMATCH
        self.given_up |= event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._hang_ups += 1
            if not self._encrypted and self._hang_ups < MAX_HANG_UPS:
                return
            reason = KEY_REFUSED if self._encrypted else HANGS_UP
        if self._failures.due():
            log.error("no connection to %s: %s", self._server, reason)

    def reconnect(self) -> None:
        """Try again after a mismatch, since the other process may be restarted with other settings. Call it seldom."""
        if self.given_up and not self._dealer.closed:
            self.given_up = False
            self._dealer.disconnect(self._endpoint)  # else ZeroMQ takes the endpoint for connected
            self._dealer.connect(self._endpoint)


class Context:
    """A ZeroMQ context whose sockets all have the options above.

    ``keys``: of this process, if the group has any. ``worker_timeout``: seconds of silence after which the scheduler
    gives up a peer; a connection outlives them, so that the scheduler decides first.
    """

    def __init__(self, keys: CurveKeys | None = None, worker_timeout: float = 5.0) -> None:
        self._silence_ms = round(2000 * worker_timeout)
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._keys = keys
        if keys is not None:
            KeyCheck(self._context, keys).start()

    def router(self, endpoint: str) -> tuple[zmq.Socket[bytes], str]:
        """A listening ROUTER, and the endpoint it listens at, with its port."""
        socket = self._socket(zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a peer that reconnects keeps its identity
        if (keys := self._keys_for(endpoint)) is not None:
            _authenticate(socket, keys)
            socket.setsockopt(zmq.CURVE_SERVER, 1)
            socket.setsockopt_string(zmq.ZAP_DOMAIN, DOMAIN)
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # no connection is accepted while the key check does not run
        socket.bind(endpoint)
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def dealer(self, endpoint: str, incarnation: str, server: str) -> tuple[zmq.Socket[bytes], Monitor]:
        """A connecting DEALER and the monitor of its connection. ``server``: name of the process at the other side.

        Raises:
            ConfigError: the public key of that process is not known.
        """
        keys = self._keys_for(endpoint)
        server_key = None if keys is None else keys.public_key(server)
        socket = self._socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, incarnation.encode())
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, MAX_RECONNECT_MS)
        # Without a connection nothing is queued: messages to a lost peer are lost with it.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        if keys is not None and server_key is not None:
            _authenticate(socket, keys)
            socket.setsockopt(zmq.CURVE_SERVERKEY, server_key)
            socket.setsockopt(zmq.RECONNECT_IVL, MAX_RECONNECT_MS)  # a refused attempt costs both sides work
        monitor = Monitor(socket, server, endpoint)
        self._sockets.append(monitor.socket)
        socket.connect(endpoint)
        return socket, monitor

    def _keys_for(self, endpoint: str) -> CurveKeys | None:
        return self._keys if endpoint.startswith(TCP) else None

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        # A gateway closes its socket to a lost vocoder worker and opens another to the next.
        self._sockets = [one for one in self._sockets if not one.closed]
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        # A connection whose other machine is gone ends after this silence.
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, self._silence_ms)
        self._sockets.append(socket)
        return socket

    def close(self) -> None:
        for socket in reversed(self._sockets):
            socket.close()
        self._context.term()


def _authenticate(socket: zmq.Socket[bytes], keys: CurveKeys) -> None:
    """Make a socket prove its identity by our keys."""
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)


def receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame] | None:
    """Receive the frames of the next message; None if there is none now."""
    try:
        return socket.recv_multipart(zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return None


def send(socket: zmq.Socket[bytes], frames: Sequence[Any], peer: str | None = None) -> None:
    """Send without waiting, through a ROUTER to ``peer`` (an incarnation).

    Raises:
        PeerGoneError: there is no such peer, no connection, or the peer's queue is full.
    """
    try:
        socket.send_multipart([peer.encode(), *frames] if peer is not None else frames, zmq.NOBLOCK, copy=False)
    except zmq.Again:
        raise PeerGoneError("queue full or not connected") from None
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            raise PeerGoneError("not connected") from None
        raise


def key_owner(frames: Sequence[zmq.Frame]) -> str | None:
    """Name of the process whose key the sender of a message has proved; None without encryption."""
    try:
        return str(frames[-1].get("User-Id"))
    except zmq.ZMQError:
        return None
