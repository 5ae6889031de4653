"""Sockets between the processes: endpoints, options and the order of closing, in one place.

Topology: the scheduler binds one ROUTER, to which gateways and workers connect a DEALER. Each vocoder worker binds a
second ROUTER for sound, to which gateways connect a DEALER. A ROUTER is mandatory: sending to a peer that has gone is
:class:`PeerGoneError` at once, not a queue. A DEALER's identity is the incarnation of its process.

Options: high-water marks are a backstop that credit keeps out of reach. LINGER lets the last words of an orderly end
(drain, shutdown) leave, and no longer. Close order: sockets and monitors, then the context (:meth:`Context.close`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from common.config import Config

HIGH_WATER_MARK = 16_384  # messages per peer
LINGER_MS = 500
MAX_MESSAGE_BYTES = 256 * 1024 * 1024
HEARTBEAT_MS = 1000
RECONNECT_MS = 50
MAX_RECONNECT_MS = 500
MAX_IPC_PATH = 103  # bytes: the smallest limit of the systems (macOS)

CONNECTED = zmq.EVENT_HANDSHAKE_SUCCEEDED
DISCONNECTED = zmq.EVENT_DISCONNECTED


class PeerGoneError(Exception):
    """The peer this message was for is not connected, or takes no more."""


def new_incarnation() -> str:
    """An id for one life of a process."""
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
    """Where the scheduler listens, and all others connect."""
    return config.transport.scheduler or ipc_endpoint(config.run_path, "scheduler")


def audio_endpoint(config: Config, name: str) -> str:
    """Where the vocoder worker of this name listens for gateways; a tcp port is any free one."""
    host = config.transport.audio_host
    return f"tcp://{host}:*" if host else ipc_endpoint(config.run_path, f"{name}.audio")


class Context:
    """A ZeroMQ context whose sockets all have the options above."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []

    def router(self, endpoint: str) -> tuple[zmq.Socket[bytes], str]:
        """A listening ROUTER, and the endpoint it listens at, with its port."""
        socket = self._socket(zmq.ROUTER)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a peer that connects anew takes its identity along
        socket.bind(endpoint)
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def dealer(self, endpoint: str, incarnation: str) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        """A connecting DEALER, and the monitor on which :func:`connection_events` hears of connections and losses."""
        socket = self._socket(zmq.DEALER)
        socket.setsockopt(zmq.IDENTITY, incarnation.encode())
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, MAX_RECONNECT_MS)
        # Without a connection nothing is queued: what is said to a lost peer is lost with it.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        monitor: zmq.Socket[bytes] = socket.get_monitor_socket(CONNECTED | DISCONNECTED)
        self._sockets.append(monitor)
        socket.connect(endpoint)
        return socket, monitor

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        # Over tcp, a peer whose machine is gone is noticed by its silence.
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
        self._sockets.append(socket)
        return socket

    def close(self) -> None:
        for socket in reversed(self._sockets):
            socket.close()
        self._context.term()


def receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame] | None:
    """The frames of the next message, or None when there is none now."""
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


def connection_events(monitor: zmq.Socket[bytes]) -> list[int]:
    """What happened to the connection since the last call: CONNECTED and DISCONNECTED, in order."""
    events = []
    while True:
        try:
            events.append(int(parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]))
        except zmq.Again:
            return events
